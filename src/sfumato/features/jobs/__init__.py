"""Jobs: long queries that run without a waiting client, and restart after a crash."""
