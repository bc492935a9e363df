"""The commands of docs/how-to/siesta-roles.md run one after the other, each as its own user."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from support.sandbox_blocks import needs_bubbles
from support.small_vaults import make_vault, run_hurried

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "siesta-roles.md"
PROGRAM = Path(__file__).parents[1] / "data" / "programs" / "siesta_means.py"
TEXT = PAGE.read_text("utf-8")


def _study(folder: Path) -> None:
    """Write a BIDS folder of 60 people, none near the middle of a range."""
    folder.mkdir()
    names = [f"sub-{n:02d}" for n in range(1, 61)]
    lines = [f"{name}\t{'n/a' if name == 'sub-07' else 24}\t185\t60\n" for name in names]
    head = "participant_id\tage\tHeight\tWeight\n"
    (folder / "participants.tsv").write_text(head + "".join(lines))
    (folder / "dataset_description.json").write_text('{"Name": "Of the folder"}')
    for name in names:
        (folder / name).mkdir()


@needs_bubbles
@pytest.mark.parametrize("more", [1, 100])
def test_the_commands_of_the_page_run(more: int, tmp_path: Path) -> None:
    """With a hundred times the budget, noise is nothing: a failed block would be seen."""
    _study(tmp_path / "FOLDER")
    shutil.copyfile(PROGRAM, tmp_path / "pipeline.py")
    (tmp_path / "whitelist.txt").write_text("derivatives/group/results.tsv\n")
    card = "".join(re.findall(r"```toml\n(.*?)```", TEXT, re.S))
    (tmp_path / "study.toml").write_text(card.replace("epsilon = 10", f"epsilon = {10 * more}"))
    block = "".join(re.findall(r"```sh\n(.*?)```", TEXT, re.S)).replace("\\\n", "")
    vault, digest, said = make_vault(tmp_path), "", {}
    for line in block.replace("epsilon 3 ", f"epsilon {3 * more} ").splitlines():
        words = shlex.split(line.replace("DIGEST", digest))
        done = run_hurried(vault, *words[1:], folder=tmp_path)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        said[" ".join(words[1:3])] = done.stdout
        found = re.findall(r"[0-9a-f]{64}", done.stdout)
        digest = digest or (found[0] if words[1:3] == ["pipeline", "submit"] else "")
    assert "The trial gave all results." in said["pipeline try"]
    assert "height" in said["pipeline run"]
    if more > 1:  # one block of five that failed would move each mean by 3 or more
        answer = said["pipeline run"].splitlines()[2]
        values = [float(word) for word in re.findall(r"(\S+) ±", answer)]
        assert np.allclose(values, (24, 185, 60), atol=1.5), answer


@pytest.mark.parametrize(
    "link", sorted(set(re.findall(r"\]\(([^)#]+)", TEXT)) - {"https://eosc-siesta.eu"})
)
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert link.startswith("https://") or (PAGE.parent / link).exists()
