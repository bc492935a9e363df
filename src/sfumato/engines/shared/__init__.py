"""Code that all engines share: result assembly, query paths, hardening of worker processes."""
