"""A synthetic BIDS folder: participants with levels, a questionnaire, undescribed columns."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np


def write_bids(folder: Path, people: int, seed: int = 4) -> Path:
    """Write the folder of so many participants, and return it."""
    (folder / "phenotype").mkdir(parents=True)
    dice = np.random.default_rng(seed)
    lines = ["participant_id\tage\tsex\tgroup\tscanner\tnickname"]
    items = ["participant_id\tphq_total\tmood"]
    for n in range(people):
        age = "n/a" if n % 40 == 7 else f"{dice.normal(45, 15):.1f}"
        sex = ("F", "M", "n/a")[int(dice.choice(3, p=(0.5, 0.47, 0.03)))]
        group = int(dice.integers(1, 4))
        lines.append(f"sub-{n:05d}\t{age}\t{sex}\t{group}\tprisma\tpixie{n}")
        if n % 3:
            items.append(f"sub-{n:05d}\t{int(dice.integers(0, 28))}\t{('low', 'high')[n % 2]}")
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    (folder / "phenotype" / "phq.tsv").write_text("\n".join(items) + "\n")
    about = {
        "age": {"Description": "age at the first scan", "Units": "year", "Minimum": 18.2},
        "sex": {"Levels": {"F": "female", "M": "male"}},
        "group": {"Levels": {"1": "control", "2": {"Description": "patient"}, "3": "relative"}},
        "scanner": {"Description": "model of the scanner"},
    }
    items_about = {"phq_total": {"Units": "points"}, "mood": {"Levels": {"low": "", "high": ""}}}
    (folder / "participants.json").write_text(json.dumps(about))
    (folder / "phenotype" / "phq.json").write_text(json.dumps(items_about))
    (folder / "dataset_description.json").write_text('{"Name": "Study", "BIDSVersion": "1.10.0"}')
    (folder / "sub-00001" / "anat").mkdir(parents=True)
    (folder / "sub-00001" / "anat" / "sub-00001_T1w.nii.gz").write_bytes(b"\0")
    return folder


def raw_bids(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return the raw tables as texts."""
    raw = duckdb.connect()
    for name, path in (("people", "participants.tsv"), ("phq", "phenotype/phq.tsv")):
        raw.execute(
            f"CREATE TABLE {name} AS SELECT * FROM read_csv('{folder / path}', delim = '\t', "
            "all_varchar = true, nullstr = 'n/a')"
        )
    return raw
