#!/bin/bash
# Ask Octave for the mean of a column. – Höhe in cm, Σ/n
set -euo pipefail
input=$1
output=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
column=$(head -n 1 "$input/participants.tsv" | tr '\t' '\n' | grep -nx Height | cut -d: -f1)
tail -n +2 "$input/participants.tsv" | cut -f"$column" | grep -v n/a > "$work/heights.txt"
mkdir -p "$output"
octave-cli --quiet --norc --eval "
  heights = load('$work/heights.txt');
  file = fopen('$output/results.tsv', 'w');
  fprintf(file, 'measure\tmean\nheight\t%.6f\n', mean(heights));
  fclose(file);
"
