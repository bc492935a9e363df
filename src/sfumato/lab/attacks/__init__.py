"""One attack, one file. Each plays by an outsider's rules and says in plain words what it found."""
