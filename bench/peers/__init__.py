"""sfumato beside other libraries: the same rows, bounds and ε, in one run on one machine."""
