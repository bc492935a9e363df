"""The command line: text for people, or one JSON object for programs."""
