"""Programs as their authors wrote them, in the base images that docs/how-to/images.md describes.

The images are built by the page's own commands, from Debian's packages.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfumato.sandbox.ports import SandboxLimits, TrialResult
from support.sandbox_blocks import needs_bubbles
from support.tree_images import RESULT, Image

pytestmark = [
    needs_bubbles,
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None or shutil.which("umoci") is None,
        reason="mmdebstrap or umoci is not installed: `make system` brings them",
    ),
]
PAGE = Path(__file__).parents[2] / "docs/how-to/images.md"
IMPORTS = SandboxLimits(cpu_s=30.0)  # scikit-learn alone takes seconds


@contextmanager
def built(language: str) -> Iterator[Image]:
    """Yield the image that the page's commands for this language build."""
    section = PAGE.read_text("utf-8").split(f"## A base image for {language}\n")[1]
    (commands,) = re.findall(r"```sh\n(.*?)```", section.split("\n## ")[0], re.S)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        done = subprocess.run(
            ["bash", "-ec", commands], cwd=place, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (layout,) = (one.parent for one in place.glob("*/index.json"))
        (named,) = json.loads((layout / "index.json").read_text())["manifests"]
        made = Image(place, made=(layout, named["digest"]))
        for tar in place.glob("*.tar"):
            tar.unlink()
        yield made
        made.pool.close()
        made.kept.remove(made.own)


@pytest.fixture(scope="module")
def debian() -> Iterator[Image]:
    """Return an image with R and Python, built from Debian's packages."""
    with built("R") as made:
        yield made


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
who <- c(Sys.info()[["user"]], path.expand("~"))
writeLines("x", "~/.written")
shell <- system("cut -f2 /work/in/participants.tsv | tail -n 1", intern = TRUE)
dir.create(given[2], showWarnings = FALSE)
write(toJSON(list(mean = found$mean, n = found$n, squares = sum(unlist(squares)),
                  shell = as.numeric(shell), who = who), auto_unbox = TRUE),
      file.path(given[2], "answer.txt"))
"""


def test_a_program_in_r_runs_with_its_libraries_workers_and_commands(debian: Image) -> None:
    found = json.loads(result_of(debian.tried(IN_R)))
    assert found == {
        "mean": 175, "n": 2, "squares": 14, "shell": 180, "who": ["analyst", "/home/analyst"],
    }  # fmt: skip


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
\tpython3 -c "import csv, json; print(sum(float(line.split()[1]) for line in open('rows')))" > sum
count: rows
\twc -l < rows > count
END
make --silent --jobs 2 --directory "$work"
mkdir -p "$2"
cp "$work/mean" "$2/answer.txt"
"""


def test_a_script_runs_make_that_runs_python_and_r(debian: Image) -> None:
    assert result_of(debian.tried(IN_BASH)) == "175"


IN_PYTHON = """
import getpass, json, sys
import numpy, pandas
from sklearn.linear_model import LinearRegression

people = pandas.read_csv(f"{sys.argv[1]}/participants.tsv", sep="\\t")
found = {"mean": people["height"].mean(), "who": getpass.getuser()}
x = numpy.arange(6).reshape(-1, 1)
found["slope"] = round(LinearRegression().fit(x, 3 * x[:, 0] + 1).coef_[0], 6)
with open(f"{sys.argv[2]}/answer.txt", "w") as file:
    json.dump(found, file)
"""


def test_a_program_in_python_runs_with_numpy_pandas_and_scikit_learn() -> None:
    with built("Python") as made:
        found = json.loads(result_of(made.tried(IN_PYTHON, IMPORTS)))
        kept = made.kept.find(made.own)
    assert found == {"mean": 175, "who": "analyst", "slope": 3}
    assert kept is not None
    assert kept.user == "analyst"
    assert ("org.opencontainers.image.title", "python-base") in kept.labels
