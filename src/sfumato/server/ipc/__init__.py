"""The IPC between edge (HTTP process) and door (vault process): frames over a Unix socket."""
