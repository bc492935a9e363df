#!/usr/bin/env python3
"""Mean height of the participants – by José, ± rounding – of a BIDS data set."""

import argparse
import os

import pandas as pd

parser = argparse.ArgumentParser()
parser.add_argument("bids_dir")
parser.add_argument("output_dir")
parser.add_argument("analysis_level", choices=["participant", "group"])
args = parser.parse_args()

people = pd.read_csv(os.path.join(args.bids_dir, "participants.tsv"), sep="\t", na_values="n/a")
os.makedirs(args.output_dir, exist_ok=True)
result = pd.DataFrame({"measure": ["height"], "mean": [people["Height"].mean()]})
result.to_csv(os.path.join(args.output_dir, "results.tsv"), sep="\t", index=False)
