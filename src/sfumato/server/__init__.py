"""The server: HTTP API, web console and inter-process calls; all decisions are made by services."""
