"""The line between edge and door: frames over a Unix socket, a closed set of verbs."""
