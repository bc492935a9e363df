"""The table of peers: what a script said is read, and what one did not do is said in one line."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import __main__ as peers
from bench.peers.environments import LISTS
from bench.peers.lines import COLUMNS, OURS, Line, compared, read_lines, reason, skipped

_SAID = {"task": "declared", "version": "1.2", "load_s": 3.0, "s": 4.0, "keys": 10, "differs": "x"}
_OURS = Line(OURS, "declared", 1000, "here", 20.0, 0.5, 10)
_THEIRS = Line("other", "declared", 1000, "1.2", 3.0, 4.0, 10, "x")


def test_a_scripts_line_is_read_among_whatever_else_it_prints() -> None:
    output = f"Welcome to Java\n7\n{{}}\n{json.dumps(_SAID)}\n[1, 2]\n"
    assert read_lines("other", 1000, output) == [_THEIRS]


def test_the_ratio_is_theirs_over_ours_of_the_same_task_and_size() -> None:
    elsewhere = [replace(_OURS, rows=2000, s=8.0), replace(_OURS, task="noise", s=8.0)]
    row = next(r for r in compared([_THEIRS, *elsewhere, _OURS]) if r["peer"] == "other")
    assert (row["seconds"], row["ours"], row["ratio"], row["differs"]) == ("4", "0.5", "8", "x")


def test_ours_stands_first_and_is_compared_with_nobody() -> None:
    first = compared([_THEIRS, _OURS])[0]
    assert (first["peer"], first["seconds"], first["ratio"]) == ("sfumato", "0.5", "")


def test_a_ratio_to_what_we_did_not_do_is_left_out() -> None:
    rows = compared([_THEIRS, Line(OURS, "declared", 1000, failed="it fell")])
    assert [row["ratio"] for row in rows] == ["", ""]


def test_a_peer_that_failed_has_a_line_that_says_why_and_no_figures() -> None:
    (row,) = compared([Line("other", "private", 1000, failed="it needs Java")])
    assert row["differs"] == "no figure: it needs Java"
    assert {row[column] for column in COLUMNS if column != "differs"} == {""}


def test_a_peer_that_cannot_be_installed_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "python_of", lambda _peer: None)
    monkeypatch.setattr(peers, "_at", lambda *_: [])
    (row,) = peers.run(["opendp"], [1000, 2000])
    assert row["peer"] == "opendp"
    assert row["differs"] == "no figure: it could not be installed, see .bench/peers/opendp.log"


def test_the_reason_is_the_last_thing_said_and_no_trace() -> None:
    said = "Traceback (most recent call last):\n  File x\nValueError: too wide\n\n"
    assert reason(said) == "ValueError: too wide"
    assert len(reason("x" * 1000)) == 120
    assert reason("\n") == "it ended without a word"


def test_what_failed_or_was_slow_is_not_tried_on_more_rows() -> None:
    before = [
        _THEIRS,
        Line("other", "private", 1000, s=99.0),
        Line("other", "noise", 1000, s=99.0),
        Line("third", "declared", 1000, failed="it fell"),
    ]
    assert [(x.task, x.failed) for x in skipped(before, "other", 2000, 30)] == [
        ("private", "not tried: over 30 s on 1,000")
    ]
    assert [x.failed for x in skipped(before, "third", 2000, 30)] == [
        "not tried: it failed on fewer rows"
    ]


def test_a_script_that_falls_is_asked_for_the_tasks_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[list[str]] = []

    def falls_at_private(_run: peers.Run, tasks: list[str]) -> tuple[str, str]:
        said.append(list(tasks))
        done = "declared" if "declared" in tasks else "noise"
        return json.dumps({**_SAID, "task": done}), "it fell" if "private" in tasks else ""

    monkeypatch.setattr(peers, "_said", falls_at_private)
    run = peers.Run("other", Path(sys.executable), tmp_path / "rows", 1000, 1.0)
    found = peers._done(run, ["declared", "private", "noise"])
    assert [(x.task, x.failed) for x in found] == [
        ("declared", ""), ("private", "it fell"), ("noise", ""),
    ]  # fmt: skip
    assert said == [["declared", "private", "noise"], ["noise"]]


def test_a_script_that_takes_too_long_is_ended_and_what_it_said_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench" / "peers").mkdir(parents=True)
    (tmp_path / "bench" / "peers" / "slow.py").write_text(
        f"import time\nprint({json.dumps(json.dumps(_SAID))}, flush=True)\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    run = peers.Run("slow", Path(sys.executable), tmp_path / "rows", 1000, 5.0)
    found = peers._done(run, ["declared", "private"])
    assert [(x.task, x.failed) for x in found] == [
        ("declared", ""), ("private", "its script was stopped after 5 s"),
    ]  # fmt: skip


@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peers_list_pins_every_version_and_names_no_index(peer: str) -> None:
    listed = (LISTS / f"{peer}.txt").read_text("utf-8").splitlines()
    assert listed
    assert all("==" in line and ":" not in line and "/" not in line for line in listed)
    assert (LISTS / f"{peer}.py").is_file()
