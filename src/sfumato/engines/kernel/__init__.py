"""The kernel: contribution bounding in integer arithmetic (numpy)."""
