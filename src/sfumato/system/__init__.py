"""What the machine gives: clock, randomness, durable files, child processes."""
