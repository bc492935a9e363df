"""Differentially private mechanisms, one per file, most with a proof in a `.proof.md` file."""
