#!/usr/bin/env python3
"""The mean age, height and weight of a study, with a description of the derived data set.

It asks the same of its folder as use case 2.1 of SIESTA (github.com/SIESTA-eu/wp15) does.
"""

import argparse
import json
import pathlib

import pandas as pd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("study", type=pathlib.Path)
parser.add_argument("results", type=pathlib.Path)
parser.add_argument("stage", choices=["participant", "group"])
given = parser.parse_args()

with open(given.study / "dataset_description.json", encoding="utf-8") as file:
    of_study = json.load(file)
derived = {
    "Name": "Means of a study",
    "BIDSVersion": "1.10.0",
    "DatasetType": "derivative",
    "License": of_study["License"],
    "SourceDatasets": [{"DOI": of_study["DatasetDOI"]}],
}
given.results.mkdir(parents=True, exist_ok=True)
with open(given.results / "dataset_description.json", "w", encoding="utf-8") as file:
    json.dump(derived, file, indent=4)

people = pd.read_csv(given.study / "participants.tsv", sep="\t")
if given.stage == "participant":
    for name in people["participant_id"]:
        (given.results / name).mkdir(exist_ok=True)
else:
    folder = given.results / "derivatives" / "group"
    folder.mkdir(parents=True, exist_ok=True)
    means = people[["age", "Height", "Weight"]].mean()
    means.to_frame().T.to_csv(folder / "results.tsv", sep="\t", index=False, header=False)
