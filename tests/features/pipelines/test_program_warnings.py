"""A program that gives no numbers is not proposed, and price and answer say so before all else.

The programs were not written for this: a researcher's from their notebook, a shell script,
one that fails at import, one that writes nothing, one that writes text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from sfumato.client.display import BlocksPlan
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines import program_warnings
from sfumato.features.pipelines import service as pipelines_service
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "participant_id"
people = "town"
size = 60
budget = { epsilon = 1000, delta = 0 }
[ask]
who = ["researchers"]
[columns.Height]
type = "number"
lower = 120
upper = 220
step = 0.5
"""
SHAPE = {"name": "height", "lower": 120, "upper": 220, "step": 0.5}
TABLE = {**SHAPE, "path": "derivatives/group/results.tsv", "at": [0, 1]}
# three tab-separated means without a header, as `pipeline.py input output group` has it
NOTEBOOK = """
import csv, os, sys
source, target, level = sys.argv[1:]
with open(os.path.join(source, "participants.tsv")) as file:
    rows = list(csv.DictReader(file, delimiter="\\t"))
heights = [float(row["Height"]) for row in rows if row["Height"] not in ("", "n/a")]
mean = sum(heights) / len(heights)
os.makedirs(os.path.join(target, "derivatives", "group"))
with open(os.path.join(target, "derivatives/group/results.tsv"), "w") as file:
    file.write("%s\\t%s\\t%s\\n" % (len(rows), mean, max(heights)))
"""
SHELL = """#!/bin/sh
set -e
mkdir -p $2/derivatives/group
echo 1 170 3 > $2/derivatives/group/results.tsv
"""
IMPORT = "import nibabel\n" + NOTEBOOK
NOTHING = "import sys\nprint('read', sys.argv[1])\n"
TEXT = NOTEBOOK.replace(
    '"%s\\t%s\\t%s\\n" % (len(rows), mean, max(heights))', '"tall\\ttall\\ttall\\n"'
)
USELESS = {
    "shell": (SHELL, "exit status 1", "SyntaxError", "there is no result"),
    "import": (IMPORT, "exit status 1", "No module named 'nibabel'", "there is no result"),
    "nothing": (NOTHING, "exit status 0", "read /work/in", "there is no result"),
    "text": (TEXT, "exit status 0", "", "is not a number"),
}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    rows = [(f"p{place:02d}", 150 + place / 2) for place in range(60)]
    source = write_csv(tmp_path / "t.csv", ("participant_id", "Height"), rows)
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        hurry(made)
        yield made


def submitted(vault: OpenVault, source: str, **output: object) -> str:
    shape = {"source": source, "kind": "program", "name": "group", "outputs": [{**TABLE, **output}]}
    made: Any = vault.call("submit-pipeline", {"data_set": "town", **shape})
    return str(made["digest"])


def called(vault: OpenVault, verb: str, digest: str, **terms: object) -> Any:
    body = {"data_set": "town", "pipeline": digest, "epsilon": 1, **terms}
    return vault.call(verb, body)


def refusal(act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value


@needs_bubbles
@pytest.mark.parametrize("name", USELESS)
def test_a_program_that_never_gave_a_number_is_not_proposed_and_its_price_says_so_first(
    vault: OpenVault, name: str
) -> None:
    source, ended, error, read = USELESS[name]
    digest = submitted(vault, source)
    plan = called(vault, "plan-pipeline", digest)
    assert (plan["proposed"], plan["never"]) == (None, ["height"])
    trial = plan["trials"][0]
    assert trial["ended"] == ended
    assert error in trial["printed"]
    assert read in trial["read"][0]["says"]
    first = repr(BlocksPlan(plan)).splitlines()[0]
    assert first.startswith("Read first: No number of blocks is proposed")
    said = repr(BlocksPlan(plan)).splitlines()
    assert sum("SyntaxError" in line or "ModuleNotFoundError" in line for line in said) <= 1
    printed = [one["printed"] for one in plan["trials"]]  # a block's means may be of nobody
    repeats = any(one and one == following for one, following in pairwise(printed))
    assert ("  | (the same)" in said) == repeats
    priced = called(vault, "price-pipeline", digest, blocks=20)
    assert "never gave a number for height (middle 170)" in priced["warnings"][0]
    answer = Answer.of(called(vault, "run-pipeline", digest, blocks=2, cpu_s=0.5))
    assert "never gave a number" in repr(answer).splitlines()[0]


@needs_bubbles
def test_the_notebooks_program_is_read_shown_and_proposed(vault: OpenVault) -> None:
    digest = submitted(vault, NOTEBOOK)
    assert "was not tried" in called(vault, "price-pipeline", digest, blocks=20)["warnings"][-1]
    plan = called(vault, "plan-pipeline", digest, epsilon=100)
    assert plan["proposed"] in (10, 20, 50)
    assert [row["blocks"] for row in plan["at"]] == [10, 20, 50]  # there are sixty people
    assert plan["trials"][0]["read"][0]["is_number"]
    # with so many blocks, some may have no people
    priced = called(vault, "price-pipeline", digest, epsilon=100, blocks=20)
    said = [*plan["warnings"], *priced["warnings"]]
    assert [one for one in said if "gave no number for height at" not in one] == []


@needs_bubbles
def test_numbers_that_blocks_of_the_trial_did_not_give_are_told_at_plan_price_and_answer(
    vault: OpenVault,
) -> None:
    digest = submitted(vault, NOTEBOOK.replace("mean =", "assert len(rows) > 9; mean ="))
    plan = called(vault, "plan-pipeline", digest, blocks=6, seed="a")
    without = plan["at"][0]["no_number"]["height"]
    assert 1 <= without <= 5
    said = (
        f"In the trial, {without} of 6 blocks gave no number for height at 6 blocks. Each of "
        "these counts as the middle of the range."
    )
    assert said in plan["warnings"]
    assert said in called(vault, "price-pipeline", digest, blocks=6)["warnings"]
    answer = Answer.of(called(vault, "run-pipeline", digest, blocks=5, cpu_s=0.5))
    assert f"Read first: {said}" in repr(answer).splitlines()


# a lock that is taken twice: the program waits for ever, and uses no processor time
WAITS = NOTEBOOK.replace(
    "rows = ", "import threading; one = threading.Lock(); one.acquire(); one.acquire(); rows = "
)


@needs_bubbles
def test_a_trial_that_the_clock_stopped_does_not_blame_the_program(vault: OpenVault) -> None:
    digest = submitted(vault, WAITS)
    plan = called(vault, "plan-pipeline", digest, blocks=2, cpu_s=0.2)
    assert plan["warnings"][0].startswith("The clock stopped every run of the trial")
    assert "machine was too busy" in plan["warnings"][0]
    assert not any("never gave a number" in one for one in plan["warnings"])
    warnings = called(vault, "price-pipeline", digest, blocks=2)["warnings"]
    assert not any("gave no number" in one or "never gave" in one for one in warnings)
    assert "was not tried" in warnings[-1]


def test_missing_cells_of_a_table_are_a_share_and_the_nearest_number_of_blocks_counts() -> None:
    def line(blocks: int, share: float) -> dict[str, Any]:
        return {
            "blocks": blocks, "tried": 8, "noise": {"t": 1.0, "n": 1.0},
            "no_number": {"t": 0, "n": blocks // 10}, "cells_missing": {"t": share},
        }  # fmt: skip

    plan = {"at": [line(10, 0.35), line(50, 0.0)], "never": []}
    assert program_warnings.missing_warnings(plan, 20) == [
        "In the trial, 35 % of the cells of t are missing at 10 blocks. Each of these counts as "
        "the middle of the range.",
        "In the trial, 1 of 8 blocks gave no number for n at 10 blocks. Each of these counts as "
        "the middle of the range.",
    ]
    (only,) = program_warnings.missing_warnings(plan, 45)
    assert "5 of 8 blocks gave no number for n at 50 blocks" in only
    assert "at 10 blocks; 5 of 8" in program_warnings.missing_warnings(plan)[1]
    assert program_warnings.missing_warnings(None, 10) == []
    assert program_warnings.missing_warnings({**plan, "never": ["n", "t"]}) == []


@needs_bubbles
def test_a_program_that_needs_many_people_is_not_proposed_at_numbers_at_which_it_fails(
    vault: OpenVault,
) -> None:
    plan = called(
        vault,
        "plan-pipeline",
        submitted(vault, NOTEBOOK.replace("mean =", "assert len(rows) > 20; mean =")),
    )
    assert (plan["silent"], plan["proposed"]) == ([], None)
    assert "more than a quarter of the blocks gave no number" in plan["warnings"][0]


@pytest.mark.parametrize("verb", ["price-pipeline", "run-pipeline"])
def test_more_blocks_than_people_are_refused_unpaid(vault: OpenVault, verb: str) -> None:
    digest = submitted(vault, NOTEBOOK)
    refused = refusal(lambda: called(vault, verb, digest, blocks=500))
    assert refused.code == "bad-pipeline"
    assert "500 blocks are more than the 60 people" in str(refused)
    assert not any(a.spent.epsilon for a in vault.house.ledger.store.accounts())


@needs_bubbles
def test_an_answer_that_was_paid_for_before_more_blocks_than_people_were_refused_is_still_given(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = submitted(vault, NOTEBOOK)
    before = called(vault, "run-pipeline", digest, blocks=8, cpu_s=0.5)
    monkeypatch.setattr(program_warnings, "most_people", lambda _card: 4)
    again = called(vault, "run-pipeline", digest, blocks=8, cpu_s=0.5)
    assert (again["rows"], again["receipt"]["free"]) == (before["rows"], True)
    other = refusal(lambda: called(vault, "run-pipeline", digest, blocks=9, cpu_s=0.5))
    assert other.code == "bad-pipeline"
    assert sum(a.spent.epsilon for a in vault.house.ledger.store.accounts()) == 3 * 10**9


@needs_bubbles
def test_a_refused_run_takes_nothing_of_the_rule_that_approved_its_program(
    vault: OpenVault,
) -> None:
    vault.enrol("ria", "researchers")
    ria = OpenVault(vault.house, "ria")
    made: Any = vault.call("set-pipeline-rule", {
        "data_set": "town", "users": ["ria"], "columns": ["Height"], "most_epsilon": 1,
        "most_total": 1, "outputs": [{"name": "height", "lower": 100, "upper": 300}],
    })  # fmt: skip
    digest = submitted(ria, NOTEBOOK)
    assert refusal(lambda: called(ria, "run-pipeline", digest, blocks=61)).code == "bad-pipeline"
    rules: Any = vault.call("pipeline-rules", {"data_set": "town"})
    assert (rules["rules"][0]["rule"], rules["rules"][0]["spent"]) == (made["rule"], "0")


@needs_bubbles
def test_an_answer_and_its_interval_stay_within_the_declared_range(vault: OpenVault) -> None:
    """At this price noise is thirty times as wide as the range, so hardly a value lies in it."""
    seen = []
    for place in range(6):
        digest = submitted(vault, NOTEBOOK, name=f"height{place}")
        found = called(vault, "run-pipeline", digest, epsilon=0.01, blocks=3, cpu_s=0.5)
        value, (low, high) = found["rows"][0][0], found["interval"][0][0]
        assert 120 <= low <= value <= high <= 220
        assert "as wide as its declared range" in found["warnings"][0]
        seen.append(value)
    assert {120, 220} & set(seen)


@needs_bubbles
def test_an_answer_that_cannot_be_told_from_blocks_without_a_number_says_so(
    vault: OpenVault,
) -> None:
    fails = submitted(vault, IMPORT)
    found = Answer.of(called(vault, "run-pipeline", fails, epsilon=100, blocks=20, cpu_s=0.5))
    priced = called(vault, "price-pipeline", fails, epsilon=100, blocks=20, cpu_s=0.5)
    told = "differs from 170 by no more than its noise"
    is_near = abs(float(str(found.value)) - 170) <= priced["error"]["height"]
    assert (told in repr(found).splitlines()[0]) == is_near
    works = submitted(vault, NOTEBOOK.replace(", mean,", ", 200,"))
    found = Answer.of(called(vault, "run-pipeline", works, epsilon=100, blocks=20, cpu_s=0.5))
    assert found.warnings == ()


def test_an_author_cannot_fill_the_ledger_by_handing_in_programs(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule, or being the owner, approves each at once: twenty that wait is no bound then."""
    monkeypatch.setattr(pipelines_service, "MAX_HANDED_IN", 2)
    first = submitted(vault, NOTEBOOK)
    submitted(vault, NOTHING)
    seq = vault.house.ledger.store.head().seq
    assert refusal(lambda: submitted(vault, SHELL)).code == "too-many"
    assert submitted(vault, NOTEBOOK) == first  # it is known
    assert vault.house.ledger.store.head().seq == seq


def test_refusals_of_a_run_say_what_to_give_and_why(vault: OpenVault) -> None:
    digest = submitted(vault, NOTEBOOK)
    unpriced = refusal(
        lambda: vault.call("price-pipeline", {"data_set": "town", "pipeline": digest})
    )
    assert unpriced.code == "bad-budget"
    assert "a wanted error for every output: --epsilon E or --error OUTPUT=X" in str(unpriced)
    rooted = refusal(lambda: submitted(vault, NOTEBOOK, path="/derivatives/r.tsv", at=[0, 1]))
    assert "begins with /" in str(rooted)
    assert "as in derivatives/r.tsv" in str(rooted)
    vault.call("decide-pipeline", {
        "data_set": "town", "pipeline": digest, "state": "declined", "reason": "Too few people.",
    })  # fmt: skip
    declined = refusal(lambda: called(vault, "run-pipeline", digest, blocks=2))
    assert "Its state is: declined. The owner wrote: Too few people." in str(declined)
