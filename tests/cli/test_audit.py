"""`sfumato audit`: what scripts and readers get from it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sfumato.cli.audit_shipped import Asked, _count
from sfumato.lab.audit.audit_suite import END_TO_END, names
from sfumato.lab.audit.shipped_mechanisms import SHIPPED
from sfumato.lab.broken.zoo import ZOO
from support import postgres_server
from support.small_vaults import run


def test_one_mechanism_by_its_name(tmp_path: Path) -> None:
    found = run(tmp_path, "audit", "Key Selection", "--json")
    assert found.returncode == 0, found.stderr
    shape = json.loads(found.stdout)
    assert shape["ok"] is True
    assert shape["seconds"] >= 0
    (one,) = shape["audits"]
    assert one["name"] == "key selection"
    assert one["where"] == "bare"
    assert one["verdict"] == "not accused"
    assert 0 < one["at_least"] < one["claim"]["epsilon"] == 1
    assert not list(tmp_path.iterdir())  # the vault that was named is not touched


def test_one_specimen_by_its_id(tmp_path: Path) -> None:
    found = run(tmp_path, "audit", "f5")
    assert found.returncode == 0, found.stderr
    assert "fixed seed" in found.stdout
    assert "1 caught." in found.stdout
    assert re.search(r"It took \d+ s\.", found.stdout)
    assert "An audit cannot prove that a mechanism is private." in found.stdout


def test_a_name_that_is_not_audited_is_refused(tmp_path: Path) -> None:
    found = run(tmp_path, "audit", "nothing of the kind", "--json")
    assert found.returncode == 3
    assert json.loads(found.stdout)["refused"]["code"] == "bad-request"
    assert "Did you mean 'key selection' or" in run(tmp_path, "audit", "Key selektion").stderr


def test_whatever_is_listed_can_be_audited_and_the_list_runs_nothing(tmp_path: Path) -> None:
    listed = run(tmp_path, "audit", "--list", "--json")
    assert listed.returncode == 0, listed.stderr
    shape = json.loads(listed.stdout)
    zoo = shape["zoo"]
    assert sorted([*shape["bare"], *shape["door"], *zoo, *zoo.values()]) == sorted(names())
    shown = run(tmp_path, "audit", "--list").stdout.splitlines()
    assert {f"  {name}" for name in (*shape["bare"], *shape["door"])} <= set(shown)
    assert not list(tmp_path.iterdir())


def test_how_many_audits_are_announced_is_how_many_are_made() -> None:
    for asked in (Asked(("MEDIAN", "f5"), False, None, 1), Asked(("f5", "f3"), True, None, 1)):
        assert _count(asked) == 2
    short = Asked((), False, None, 1, ("local[2]",))
    of_door = sum(one.is_short for one in END_TO_END)
    assert _count(short) == len(SHIPPED) + 2 * of_door
    everything = Asked((), False, "page.md", 1)
    assert _count(everything) == len(SHIPPED) + len(END_TO_END) + len(ZOO)


@pytest.mark.slow
def test_a_question_is_asked_at_the_doors_of_several_engines(tmp_path: Path) -> None:
    with postgres_server.running() as server:
        url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{server.own_database()}"
        found = run(tmp_path, "audit", "COUNT(*)", "--engine", url, "--json")
    assert found.returncode == 0, found.stderr
    where = [one["where"] for one in json.loads(found.stdout)["audits"]]
    assert where == ["door, DuckDB", "door, PostgreSQL"]


def test_an_engine_that_is_none_is_refused_before_anything_is_audited(tmp_path: Path) -> None:
    found = run(tmp_path, "audit", "COUNT(*)", "--engine", "mysql://here")
    assert found.returncode == 3
    assert "engine-unavailable" in found.stderr
    assert "auditing" not in found.stderr
