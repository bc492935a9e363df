"""What an auditor sees: the chain, an answer sheet for each release, and who may do what."""
