"""The commands of docs/how-to/siesta-roles.md run one after the other, each as its own user."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.sandbox_blocks import needs_bubbles
from support.small_vaults import make_vault, run_hurried, write_csv

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "siesta-roles.md"
TEXT = PAGE.read_text("utf-8")
PIPELINE = """
import csv, os, sys
source, target, level = sys.argv[1:]
with open(os.path.join(source, "participants.tsv")) as file:
    people = list(csv.DictReader(file, delimiter="\\t"))
means = []
for name in ("age", "Height", "Weight"):
    found = [float(one[name]) for one in people if one[name] != "n/a"]
    means.append(sum(found) / max(1, len(found)))
os.makedirs(os.path.join(target, "derivatives", level))
with open(os.path.join(target, "derivatives", level, "results.tsv"), "w") as file:
    file.write("\\t".join(map(str, means)) + "\\n")
"""


@needs_bubbles
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    vault, rows = make_vault(tmp_path), [(f"sub-{n:02d}", 20 + n, 170, 60) for n in range(60)]
    table = write_csv(tmp_path / "t.csv", ("participant_id", "age", "Height", "Weight"), rows)
    (tmp_path / "participants.tsv").write_text(table.read_text().replace(",", "\t"))
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "whitelist.txt").write_text("derivatives/group/results.tsv\n")
    (tmp_path / "study.toml").write_text("".join(re.findall(r"```toml\n(.*?)```", TEXT, re.S)))
    block = "".join(re.findall(r"```sh\n(.*?)```", TEXT, re.S)).replace("\\\n", "")
    digest, said = "", []
    for line in block.splitlines():
        words = shlex.split(line.replace("DIGEST", digest))
        done = run_hurried(vault, *words[1:], folder=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        said.append(done.stdout)
        found = re.findall(r"[0-9a-f]{64}", done.stdout)
        digest = digest or (found[0] if words[1:3] == ["pipeline", "submit"] else "")
    assert "height" in said[-2]


@pytest.mark.parametrize(
    "link", sorted(set(re.findall(r"\]\(([^)#]+)", TEXT)) - {"https://eosc-siesta.eu"})
)
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert link.startswith("https://") or (PAGE.parent / link).exists()
