"""The card, the commands and the Python of docs/how-to/airlock.md run; its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import sfumato
from sfumato.vault.card.airlock_terms import AirlockTerms
from support.container_images import PYTHON, layout, shell_layer
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run_hurried, write_csv

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "airlock.md"
TEXT = PAGE.read_text("utf-8")
(TERMS,) = re.findall(r"```toml\n(.*?)```", TEXT, re.S)
CARD = f"""
unit = "participant_id"
people = "heights"
budget = {{ epsilon = 3, delta = 0 }}
[ask]
who = ["researchers"]
[columns.site]
type = "text"
keys = ["a", "b"]
[columns.height]
type = "number"
lower = 100
upper = 250
step = 0.1
{TERMS}
"""
PROGRAM = """
import sys
rows = [line.split("\\t") for line in open(sys.argv[1] + "/participants.tsv")][1:]
with open(sys.argv[2] + "/table.csv", "w") as file:
    file.write("site,n\\n" + "".join("%s,30\\n" % site for site in ("a", "b")))
with open(sys.argv[2] + "/figure.svg", "w") as file:
    file.write("<svg xmlns='http://www.w3.org/2000/svg'><rect width='%d'/></svg>" % len(rows))
"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    rows = [(f"sub-{place:02d}", "ab"[place % 2], 150 + place / 2) for place in range(60)]
    made = make_vault(tmp_path)
    with sfumato.open(made) as opened:
        source = write_csv(tmp_path / "t.csv", ("participant_id", "site", "height"), rows)
        opened.add("heights", source, card(CARD))
        opened.enrol("ria", "researchers")
    return made


def test_the_card_of_the_page_is_what_stands_by_itself() -> None:
    said = card(TERMS)["airlock"]
    reviewers = tuple(said.pop("reviewers"))
    assert AirlockTerms(reviewers) == AirlockTerms(reviewers, **said)


@needs_bubbles
def test_the_commands_of_the_page_run(vault: Path) -> None:
    (vault.parent / "figure.py").write_text(PROGRAM)
    block, _ = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
    request = seal = ""
    for line in block.replace("\\\n", "").splitlines():
        words = shlex.split(line.replace("REQUEST", request).replace("SEAL", seal))
        done = run_hurried(vault, *words[1:], folder=vault.parent)
        assert done.returncode == 0, done.stderr
        request = request or re.findall(r"[0-9a-f]{16}", done.stdout)[0]
        seal = next(iter(re.findall(r"--seal ([0-9a-f]{64})", done.stdout)), seal)
    assert (vault.parent / "mine" / "table.csv").read_text() == "site,n\na,30\nb,30\n"
    assert "width='60'" in (vault.parent / "mine" / "figure.svg").read_text()
    assert "reviewed (not DP)" in (vault.parent / "mine" / "reviewed-not-dp.json").read_text()
    assert "reviewers-only" in (vault.parent / "look" / "reviewers-only.txt").read_text()


@needs_bubbles
def test_the_commands_about_an_image_run(vault: Path) -> None:
    (vault.parent / "figure.R").write_text("#!/bin/bash\nprintf x > $2/figure.png\n")
    digest = layout(vault.parent / "image", [shell_layer()], settings=PYTHON, packed=False)
    with sfumato.open(vault) as opened:
        name = opened.environments.add_image(vault.parent / "image", digest, "").name
    _, block = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
    said = ""
    for line in block.splitlines():
        words = shlex.split(line.replace("IMAGE", name))
        done = run_hurried(vault, *words[1:], folder=vault.parent)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    (request,) = re.findall(r"airlock run ([0-9a-f]{16})", said)
    ran = run_hurried(vault, "airlock", "run", request)
    assert f"Next, each reviewer looks: sfumato airlock show {request} -o files" in ran.stdout
    shown = run_hurried(vault, "--user", "rita", "airlock", "show", request)
    assert "figure.png 1 bytes" in shown.stdout
    votes = [line for line in shown.stdout.splitlines() if line.startswith("  sfumato airlock")]
    assert [line.split()[4] for line in votes] == ["release", "reject"]
    for user in ("rita", "owner"):  # the printed command runs as it is
        words = shlex.split(votes[0])[1:]
        done = run_hurried(vault, *(("--user", user) if user != "owner" else ()), *words)
        assert done.returncode == 0, done.stderr
        more = "one more reviewer votes: sfumato airlock show"
        last = "release the files: sfumato airlock release"
        assert f"Next, {more if user == 'rita' else last} {request}" in done.stdout


@needs_bubbles
def test_the_python_of_the_page_runs(vault: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (vault.parent / "page.py").write_text(code)
    spec = importlib.util.spec_from_file_location("page", vault.parent / "page.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    with sfumato.open(vault) as opened:
        hurry(opened)
        page.__dict__["vault"] = sfumato.app.vault.OpenVault(opened.house, "ria")
        spec.loader.exec_module(page)
        room = opened["heights"].airlock
        room.run(page.request)
        found = room.show(page.request)
        assert found.files["table.csv"].startswith(b"site,n,mean\na,30,")
        room.vote(found, "release")
        rita = sfumato.app.vault.OpenVault(opened.house, "rita")["heights"].airlock
        rita.vote(rita.show(page.request), "release", why="fine")
        rita.release(page.request)
        ria = page.__dict__["vault"]["heights"].airlock
        assert ria.fetch(page.request).guarantee == "reviewed (not DP)"
        assert [one["state"] for one in ria.list()] == ["released"]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
