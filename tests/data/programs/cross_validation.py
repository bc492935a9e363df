#!/usr/bin/env python3
"""Predict height from weight, cross-validated with two worker processes."""

import sys
from pathlib import Path

import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

source, target = Path(sys.argv[1]), Path(sys.argv[2])
people = pd.read_csv(source / "participants.tsv", sep="\t", na_values="n/a")
people = people.dropna(subset=["Height", "Weight"])
predicted = cross_val_predict(Ridge(), people[["Weight"]], people["Height"], cv=3, n_jobs=2)
target.mkdir(parents=True, exist_ok=True)
(target / "results.tsv").write_text(f"measure\tmean\nheight\t{predicted.mean()}\n")
