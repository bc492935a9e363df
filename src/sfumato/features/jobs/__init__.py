"""Long work as jobs: begun, seen, cancelled while it waits, gone on with after a crash."""
