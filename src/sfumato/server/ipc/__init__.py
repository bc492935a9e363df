"""The protocol between edge and door: frames over a Unix socket."""
