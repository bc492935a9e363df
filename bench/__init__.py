"""What `make bench` runs: every figure as a ratio in one run, on this machine."""
