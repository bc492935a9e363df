"""Programs of several files: what the digest covers, what is refused, and what a review shows."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import Submitted
from sfumato.features.pipelines.program_folder import MAX_SOURCE, read_folder, text_digest
from sfumato.features.pipelines.program_plan import Program, read_program
from sfumato.features.pipelines.program_review import MAX_COMPARED, changes_json
from sfumato.query.expression import canonical_json
from sfumato.vault.card.data_card import read_card
from support.pipeline_cards import town_card
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run, write_csv

CARD = town_card(41)
OUTPUT = {"name": "m", "lower": 100, "upper": 220, "step": 1, "path": "m.txt"}
MAIN = """
import sys
from tools.means import mean
with open("place.txt") as file:  # a program begins in its own folder
    name = file.read().strip()
with open(sys.argv[1] + "/participants.tsv") as file:
    head, *rows = [line.rstrip().split("\\t") for line in file]
with open(sys.argv[2] + "/m.txt", "w") as file:
    file.write(str(mean([float(row[head.index(name)]) for row in rows])))
"""
MEANS = "def mean(found):  # für José\n    return sum(found) / len(found) if found else 160\n"
FILES = {"main.py": MAIN, "tools/means.py": MEANS, "place.txt": "height\n"}


def submitted(files: dict[str, str] | list[tuple[str, str]], main: str = "main.py") -> Program:
    pairs = list(files.items() if isinstance(files, dict) else files)
    modules = [{"path": path, "text": text} for path, text in pairs if path != main]
    shape = {
        "source": dict(pairs).get(main, ""), "main": main, "modules": modules, "name": "group",
        "kind": "program", "outputs": [OUTPUT],
    }  # fmt: skip
    return read_program(read_card("town", tomllib.loads(CARD)), shape, "ours")


def written(place: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, "utf-8")
    return place


def test_the_digest_covers_every_name_and_byte_and_no_order() -> None:
    others: list[dict[str, str]] = [
        {**FILES, "place.txt": "height"},
        {**FILES, "tools/means.py": FILES["place.txt"], "place.txt": MEANS},
        {**FILES, "tools/__init__.py": ""},
        {"main.py": MAIN, "tools/means.py": MEANS, "Place.txt": "height\n"},
        {path: text for path, text in FILES.items() if path != "place.txt"},
    ]
    programs = [submitted(FILES), *map(submitted, others), submitted(FILES, "place.txt")]
    assert len({one.digest for one in programs}) == len(programs)
    assert len({one.text_digest for one in programs}) == len(programs)
    assert submitted(list(reversed(FILES.items()))).digest == submitted(FILES).digest


def test_no_text_of_one_file_has_the_digest_of_a_folder() -> None:
    """A dictionary with programs in its texts is a harmless program, which a rule could name."""
    files = submitted(FILES).as_json()
    harmless = canonical_json({key: files[key] for key in ("source", "main", "modules")})
    shape = {
        "source": harmless, "name": "group", "kind": "program", "outputs": [OUTPUT],
    }  # fmt: skip
    alone = read_program(read_card("town", tomllib.loads(CARD)), shape, "ours")
    assert alone.text_digest != submitted(FILES).text_digest


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../x.py", "must have a path"),
        ("/x.py", "must have a path"),
        (".hidden", "must have a path"),
        ("a/./b", "must have a path"),
        ("a//b", "must have a path"),
        ("a\n", "must have a path"),
        ("main.py/x", "have the same path"),
        ("tools", "have the same path"),
        ("tools/means.py", "have the same path"),
    ],
)
def test_a_path_that_is_not_plain_is_refused(path: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        submitted([*FILES.items(), (path, "x")])


def test_a_text_that_an_owner_would_not_see_is_refused_in_every_file() -> None:
    for main, path in (("main.py", "place.txt"), ("place.txt", "place.txt")):
        for text in ("\x00", "a\u202eb", "\ud800"):
            with pytest.raises(Refused, match=r"In the (file 'place\.txt' of the )?program"):
                submitted({**FILES, path: text}, main)


def test_letters_of_any_language_are_part_of_the_program_and_its_digest() -> None:
    accents = {**FILES, "main.py": MAIN + "# José – ±\n", "place.txt": "größe 身長\n"}
    program = submitted(accents)
    assert (program.source, dict(program.modules)) == (
        accents["main.py"], {path: text for path, text in accents.items() if path != "main.py"},
    )  # fmt: skip
    plain = submitted({**accents, "main.py": MAIN + "# Jose – ±\n"})
    assert program.digest != plain.digest
    assert program.text_digest != plain.text_digest
    again = read_program(read_card("town", tomllib.loads(CARD)), program.as_json(), "ours")
    assert again.digest == program.digest


def test_all_files_together_have_one_limit() -> None:
    with pytest.raises(Refused, match="with all its files"):
        submitted({**FILES, "a.txt": "a" * (MAX_SOURCE // 2), "b.txt": "b" * (MAX_SOURCE // 2)})
    with pytest.raises(Refused, match="with all its files"):  # 2 bytes each
        submitted({**FILES, "a.txt": "é" * (MAX_SOURCE // 2)})
    with pytest.raises(Refused, match="2 to 100 files"):
        submitted({"main.py": "1", **{f"f{n}": "" for n in range(100)}})


def test_a_function_has_no_files() -> None:
    shape = {
        **submitted(FILES).as_json(), "kind": "function", "outputs": [{**OUTPUT, "path": None}]
    }  # fmt: skip
    with pytest.raises(Refused, match="a function is one text"):
        read_program(read_card("town", tomllib.loads(CARD)), shape, "ours")


def test_a_folder_is_read_without_what_is_hidden(tmp_path: Path) -> None:
    place = written(tmp_path / "p", {**FILES, ".git/x": "", "tools/__pycache__/m.pyc": ""})
    said: Any = read_folder(place)
    assert said["main"] == "main.py"
    assert {one["path"] for one in said["modules"]} == FILES.keys() - {"main.py"}
    assert text_digest(said) == submitted(FILES).text_digest
    assert read_folder(place, "place.txt")["source"] == "height\n"
    assert read_folder(written(tmp_path / "one", {"any.py": "1"})) == {"source": "1"}


def test_a_folder_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    for name, files, says in (
        ("two", {"a.py": "", "b.py": ""}, "not clear"),
        ("none", {".x": ""}, "no file"),
    ):
        with pytest.raises(Refused, match=says):
            read_folder(written(tmp_path / name, files))
    place = written(tmp_path / "p", FILES)
    with pytest.raises(Refused, match=r"no file 'other\.py'"):
        read_folder(place, "other.py")
    (place / "model.bin").write_bytes("ab\né".encode("latin-1"))
    with pytest.raises(Refused, match=r"model\.bin is not UTF-8: line 2 has the byte 0xE9"):
        read_folder(place)
    (place / "model.bin").unlink()
    os.symlink("/etc/passwd", place / "link.py")
    with pytest.raises(Refused, match=r"link\.py is a link"):
        read_folder(place)


def test_a_review_shows_what_became_of_each_file() -> None:
    def stored(files: dict[str, str]) -> Submitted:
        program = submitted(files)
        return Submitted(program.digest, "town", json.dumps(program.as_json()), "ria", "now")

    now = {"main.py": MAIN, "tools/means.py": MEANS + "# new\n", "added.py": "1\n"}
    said: Any = changes_json(stored(FILES), stored(now))
    assert said["text"] == []
    found = {one["path"]: (one["state"], one["text"]) for one in said["files"]}
    assert found["added.py"][0] == "added"
    assert "+1" in found["added.py"][1]
    assert (found["place.txt"][0], found["place.txt"][1][1]) == ("removed", "-height")
    assert [line for line in found["tools/means.py"][1] if line[0] in "+-"] == ["+# new"]
    long = {f"f{n}.txt": "x\n" * (MAX_COMPARED // 2) for n in range(4)}
    compared: Any = changes_json(stored(FILES), stored({**FILES, **long}))["files"]
    assert [one["text"] is None for one in compared] == [False, True, True, True]


def test_a_rule_for_a_text_fits_no_other_folder_with_the_same_main_file(tmp_path: Path) -> None:
    vault = made_vault(tmp_path)
    named = written(tmp_path / "named", {**FILES, "place.txt": "height"})
    rule = ("--column", "height", "--output", "m:0:300", "--most-epsilon", "1", "--most-total", "1")
    for text in (named / "main.py", named):
        terms = ("--of", "ria", *rule, "--text", str(text))
        assert run(vault, "pipeline", "rule", "town", *terms).returncode == 0
    for place, state in ((named, "approved"), (written(tmp_path / "other", FILES), "waiting")):
        given = (str(place), "--output", "m:100:220:1@m.txt", "--column", "height")
        made = run(vault, "pipeline", "submit", "town", *given, "--user", "ria", "--json")
        assert json.loads(made.stdout)["state"] == state


@needs_bubbles
def test_a_folder_runs_on_rows_and_its_answer_is_found_again(tmp_path: Path) -> None:
    vault = made_vault(tmp_path)
    place = written(tmp_path / "p", FILES)
    given = (str(place), "--output", "m:100:220:1@m.txt", "--json")
    digest = json.loads(run(vault, "pipeline", "submit", "town", *given).stdout)["digest"]
    shown = run(vault, "pipeline", "show", "town", digest).stdout
    assert all(text in shown for text in ("main.py (the main file):", "tools/means.py:", "height"))
    assert "  1  def mean(found):  # für José\n" in shown
    assert "é is U+00E9 LATIN SMALL LETTER E WITH ACUTE (tools/means.py, line 1)" in shown
    terms = {"data_set": "town", "pipeline": digest, "epsilon": 900, "blocks": 2, "cpu_s": 2}
    with sfumato.open(vault) as opened:
        hurry(opened)
        found: Any = opened.call("run-pipeline", {**terms, "op": "one"})
        assert found["rows"][0][0] == pytest.approx(160, abs=1)
        again = opened.call("pipeline-answer", {"data_set": "town", "op": "one"})
    assert again["rows"] == found["rows"]


def made_vault(tmp_path: Path) -> Path:
    vault = make_vault(tmp_path)
    rows = [(f"n{place}", 150 + place / 2) for place in range(41)]
    source = write_csv(tmp_path / "t.csv", ("who", "height"), rows)
    with sfumato.open(vault) as opened:
        opened.add("town", source, card(CARD))
        opened.enrol("ria", "researchers")
    return vault


@pytest.mark.parametrize("path", ["main.py", ""])
def test_the_same_file_is_the_same_program_whichever_way_it_came(tmp_path: Path, path: str) -> None:
    """A file of Windows, on the command line, and as it is sent to the service."""
    files = {path: FILES[path]} if path else FILES
    place = tmp_path / "p"
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(text.replace("\n", "\r\n").encode())
    made = make_vault(tmp_path)
    with sfumato.open(made) as vault:
        source = write_csv(tmp_path / "t.csv", ("who", "height"), [("ann", 170), ("bob", 180)])
        vault.add("town", source, card(CARD))
        said: Any = read_folder(place)
        assert text_digest(said) == text_digest(read_folder(written(tmp_path / "q", files)))
        sent: dict[str, Any] = {**said, "source": said["source"].replace("\n", "\r\n")}
        if "modules" in said:
            sent["modules"] = [
                {"path": one["path"], "text": one["text"].replace("\n", "\r\n")}
                for one in said["modules"]
            ]
        body = {"data_set": "town", "name": "group", "kind": "program", "outputs": [OUTPUT]}
        first, second = (vault.call("submit-pipeline", {**body, **one}) for one in (said, sent))
        assert first["digest"] == second["digest"]
        found = vault.house.desk.pipelines.store.find("town", str(first["digest"]))
        assert found is not None
        assert text_digest(json.loads(found.program)) == text_digest(said)
        assert "\r" not in json.loads(found.program)["source"]
