"""Remote tensors: send them, compute at the worker, and fetch back what is yours."""
