"""The server: HTTP API and web console (edge), and the process that holds the ledger (door)."""
