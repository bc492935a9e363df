"""Differentially private mechanisms, one per file; most have a proof file `*.proof.md`."""
