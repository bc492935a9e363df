"""The server: HTTP API, web console and IPC; it translates requests, and decides nothing."""
