"""The table of survey peers: what a script said is read, and the few are scaled up in the open."""

from __future__ import annotations

import pytest

from bench import estimates
from bench.peers import surveys
from bench.peers.environments import LISTS
from bench.peers.surveys import Took, read, row, scaled


@pytest.mark.parametrize("peer", surveys.PEERS)
def test_a_peers_list_pins_every_version_and_names_no_index(peer: str) -> None:
    lines = (LISTS / f"{peer}.txt").read_text("utf-8").split()
    assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_the_last_line_of_a_script_is_read() -> None:
    said = 'a warning\n{"task": "k-ary 2", "people": 10000, "s": 0.5, "version": "1.2.0"}\n'
    assert read(said, "") == Took(10_000, 0.5, "1.2.0")


def test_a_script_that_falls_is_quoted_and_one_without_the_oracle_says_so() -> None:
    assert read("", "Traceback\nKeyError: 5\n").failed == "KeyError: 5"
    assert read("", "").failed == "it has no such oracle"


def test_a_row_says_on_how_many_people_it_was_measured() -> None:
    line = row("k-ary 2", "pure_ldp", Took(1_000_000, 0.01), Took(10_000, 0.5, "1.2.0"))
    assert (line["seconds"], line["measured on"], line["ratio"]) == ("50", "10,000 people", "5,000")
    failed = row("k-ary 2", "pure_ldp", Took(1_000_000, 0.01), Took(failed="no"))
    assert (failed["seconds"], failed["measured on"]) == ("", "no")


def test_what_is_quick_is_measured_on_the_million(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(_peer: str, _python: object, _task: str, people: int) -> Took:
        asked.append(people)
        return Took(people, people / 1e6 * (1 if len(asked) < 3 else 100))

    monkeypatch.setattr(surveys, "measured", measured)
    assert scaled("pure_ldp", LISTS, "k-ary 2").people == 1_000_000
    assert scaled("pure_ldp", LISTS, "k-ary 2").people == 10_000
    assert asked == [10_000, 1_000_000, 10_000]
    assert scaled("pure_ldp", None, "k-ary 2").failed == "it could not be installed"


def test_estimates_are_as_far_off_as_is_stated() -> None:
    """Of few surveys, so loosely; the row of each says how many errors it has."""
    rows = estimates.run(1000)
    for one in rows:
        errors, ratio, held = (one[key] for key in ("squared errors", "seen/stated", "held %"))
        assert isinstance(errors, int)
        assert isinstance(ratio, float)
        assert isinstance(held, float)
        assert errors >= 200
        assert 0.6 < ratio < 1.5
        assert held > 70
