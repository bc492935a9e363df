#!/bin/sh
# A pipeline of steps, as make runs them.
set -e
mkdir -p "$2"
cd "$(mktemp -d)"
cat > Makefile <<'END'
$(OUTPUT)/results.tsv: mean.txt
	printf 'measure\tmean\nheight\t%s\n' "$$(cat mean.txt)" > $@
mean.txt: heights.txt
	awk '{ sum += $$1 } END { print sum / NR }' heights.txt > $@
heights.txt: $(INPUT)/participants.tsv
	awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($$i == "Height") c = i; next } \
	  $$c != "n/a" { print $$c }' $< > $@
END
make --silent -j 2 INPUT="$1" OUTPUT="$2"
