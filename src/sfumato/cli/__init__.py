"""The command line: plain words for people, one JSON object for programs."""
