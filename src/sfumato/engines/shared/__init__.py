"""What the engines share: cell assembly, query paths, hardening of worker processes."""
