#!/bin/bash
# Run a Jupyter notebook as a program.
set -euo pipefail
export BIDS_DIR=$1 OUTPUT_DIR=$2
mkdir -p "$OUTPUT_DIR"
cat > /tmp/analysis.ipynb <<'END'
{
 "cells": [
  {
   "cell_type": "code", "execution_count": null, "id": "one", "metadata": {}, "outputs": [],
   "source": ["import os\n", "import pandas as pd\n",
    "people = pd.read_csv(os.environ['BIDS_DIR'] + '/participants.tsv', sep='\\t')\n",
    "mean = people['Height'].mean()\n", "mean"]
  },
  {
   "cell_type": "code", "execution_count": null, "id": "two", "metadata": {}, "outputs": [],
   "source": ["with open(os.environ['OUTPUT_DIR'] + '/results.tsv', 'w') as file:\n",
    "    file.write(f'measure\\tmean\\nheight\\t{mean}\\n')"]
  }
 ],
 "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
 "nbformat": 4,
 "nbformat_minor": 5
}
END
jupyter nbconvert --to notebook --execute /tmp/analysis.ipynb --output /tmp/done.ipynb
