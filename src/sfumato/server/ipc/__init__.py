"""The IPC protocol between edge and door: frames over a Unix socket."""
