"""Long queries as jobs: begin, watch, cancel, go on after a crash."""
