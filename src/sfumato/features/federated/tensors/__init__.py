"""Remote tensors: send, compute at the worker, bring back what was yours."""
