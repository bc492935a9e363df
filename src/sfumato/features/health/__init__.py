"""Whether the service is ready, and what an operator may measure of it."""
