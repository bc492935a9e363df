"""Programs as their authors wrote them, in an image that is built from Debian's own packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.sandbox.ports import TrialResult
from support.sandbox_blocks import needs_bubbles
from support.tree_images import RESULT, Image

pytestmark = [
    needs_bubbles,
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None,
        reason="mmdebstrap is not installed: `make system` brings it",
    ),
]
PACKAGES = (
    "bash", "make", "python3-minimal", "r-base-core", "r-cran-dplyr", "r-cran-jsonlite",
    "r-cran-optparse",
)  # fmt: skip
LEFT_OUT = ("doc", "locale", "man", "info", "icons")


@pytest.fixture(scope="module")
def debian() -> Iterator[Image]:
    """Return an image with R and Python, built from Debian's packages."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder, "root.tar")
        leave = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
        told = ["mmdebstrap", "--variant=minbase", *leave, f"--include={','.join(PACKAGES)}"]
        subprocess.run([*told, "bookworm", str(root)], check=True, capture_output=True)
        made = Image(Path(folder), [root.read_bytes()], {})
        root.unlink()
        yield made
        made.pool.close()
        made.kept.remove(made.own)


def result_of(tried: TrialResult) -> str:
    assert tried.ending == "exit status 0", tried.printed.decode()
    text: str = bytes.fromhex(json.loads(tried.output)[RESULT]).decode()
    return text


IN_R = """#!/usr/bin/env Rscript
suppressMessages({library(optparse); library(jsonlite); library(dplyr)})
given <- parse_args(OptionParser(), positional_arguments = TRUE)$args
people <- read.delim(file.path(given[1], "participants.tsv"))
found <- people %>% summarise(mean = mean(height), n = n())
squares <- parallel::mclapply(1:3, function(i) i^2, mc.cores = 2)
shell <- system("cut -f2 /work/in/participants.tsv | tail -n 1", intern = TRUE)
dir.create(given[2], showWarnings = FALSE)
write(toJSON(list(mean = found$mean, n = found$n, squares = sum(unlist(squares)),
                  shell = as.numeric(shell)), auto_unbox = TRUE),
      file.path(given[2], "answer.txt"))
"""


def test_a_program_in_r_runs_with_its_libraries_workers_and_commands(debian: Image) -> None:
    found = json.loads(result_of(debian.tried(IN_R)))
    assert found == {"mean": 175, "n": 2, "squares": 14, "shell": 180}


IN_BASH = """#!/bin/bash
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tail -n +2 "$1/participants.tsv" | sort > "$work/rows"
cat > "$work/Makefile" <<'END'
all: mean
mean: sum count
\tRscript -e "cat(scan('sum', quiet = TRUE) / scan('count', quiet = TRUE))" > mean
sum: rows
\tpython3 -c "print(sum(float(line.split()[1]) for line in open('rows')))" > sum
count: rows
\twc -l < rows > count
END
make --silent --jobs 2 --directory "$work"
mkdir -p "$2"
cp "$work/mean" "$2/answer.txt"
"""


def test_a_script_runs_make_that_runs_python_and_r(debian: Image) -> None:
    assert result_of(debian.tried(IN_BASH)) == "175"
