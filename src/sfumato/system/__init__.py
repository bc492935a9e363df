"""Access to the machine: clock, randomness, durable files, child processes, temporary folders."""
