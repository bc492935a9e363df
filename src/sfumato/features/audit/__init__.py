"""The auditor's view: the ledger, an answer sheet for each release, and access rights."""
