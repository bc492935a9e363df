"""Plans of pipelines: what more blocks cost in bias and save in noise, tried on made-up people."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.async_vault import AsyncDataSet
from sfumato.client.display import BlocksPlan
from sfumato.client.vault import DataSet
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.pipelines import cli
from sfumato.features.pipelines import service as pipelines_service
from sfumato.sandbox.ports import SandboxStopped
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 10, delta = 0 }
[ask]
who = ["researchers"]
[columns.height]
type = "number"
lower = 100
upper = 200
step = 0.5
"""
PEOPLE = 600
OUTPUT = {"m": (0, 200, 1)}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    source = write_csv(tmp_path / "t.csv", ("who", "height"), [("ann", 199)])
    made = make_vault(tmp_path)
    with sfumato.open(made) as opened:
        opened.add("town", source, card(CARD))
        opened.enrol("ria", "researchers")
    with sfumato.open(made) as opened:
        yield opened


def mean(rows: Any) -> float:
    return float(rows["height"].mean())


def needs_many(rows: Any) -> float:
    if len(rows) < 9:
        raise ValueError("too few")
    return 180.0


def planned(vault: OpenVault, function: Callable[[Any], object], **terms: Any) -> BlocksPlan:
    return vault["town"].plan(function, outputs=OUTPUT, epsilon=1, **terms)


def by_blocks(found: BlocksPlan) -> dict[int, dict[str, Any]]:
    return {row["blocks"]: row for row in found["at"]}


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


@needs_bubbles
def test_noise_falls_with_blocks_and_a_program_that_needs_many_people_is_seen_to_bend(
    vault: OpenVault,
) -> None:
    found = planned(vault, needs_many, people=PEOPLE)
    rows = by_blocks(found)
    noises = [rows[blocks]["noise"]["m"] for blocks in (10, 50, 200, 500)]
    assert noises == sorted(noises, reverse=True)
    assert rows[10]["bias"]["m"] == 0  # sixty people in each
    assert rows[500]["bias"]["m"] == -80  # one or two: it fails, and the middle is 100
    assert found["proposed"] in (10, 20, 50)


def near_the_middle(rows: Any) -> float:
    if len(rows) < 9:
        raise ValueError("too few")
    return 101.0


@needs_bubbles
def test_blocks_that_fail_near_the_truth_by_chance_are_not_proposed(vault: OpenVault) -> None:
    """The middle is 100: their bias is 1, and their noise the least of all."""
    found = planned(vault, near_the_middle, people=PEOPLE)
    rows = by_blocks(found)
    assert rows[500]["in_the_middle"]["m"] == 8
    assert rows[500]["together"] == min(row["together"] for row in found["at"])
    assert found["proposed"] <= 100


@needs_bubbles
def test_a_mean_is_hardly_bent_and_says_how_well_that_is_known(vault: OpenVault) -> None:
    found = planned(vault, mean, people=PEOPLE)
    row = by_blocks(found)[20]
    assert abs(row["bias"]["m"]) < 15  # of eight blocks of thirty: eight stds of what chance does
    assert 0 < row["bias_within"]["m"] < 15
    assert found["people"] == PEOPLE


@needs_bubbles
def test_a_plan_reads_no_row_and_spends_nothing(vault: OpenVault) -> None:
    planned(vault, mean, people=50)
    engine = vault.house.engine
    assert isinstance(engine, DuckDBEngine)
    assert engine.worker_pid() is None
    assert not any(a.spent.epsilon for a in vault.house.ledger.store.accounts())


@pytest.mark.parametrize("people", [None, 0, 1, -1, 10**9, True])
def test_a_plan_needs_to_know_for_how_many_people(vault: OpenVault, people: Any) -> None:
    assert code_of(lambda: planned(vault, mean, people=people)) == "bad-pipeline"


def of(vault: OpenVault, user: str, digest: str, **terms: Any) -> Any:
    body = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 5, **terms}
    return OpenVault(vault.house, user).call("plan-pipeline", body)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as found:
        act()
    assert found.value.code == "bad-pipeline"
    return f"{found.value.cause} {found.value.next_step}"


def waiting(vault: OpenVault) -> str:
    """Return the digest of a program that ria has submitted, and nobody has approved."""
    return str(OpenVault(vault.house, "ria")["town"].submit(mean, outputs=OUTPUT)["digest"])


def decide(vault: OpenVault, digest: str, **state: object) -> None:
    vault.call("decide-pipeline", {"data_set": "town", "pipeline": digest, **state})


@needs_bubbles
def test_a_block_may_take_more_once_the_program_is_approved_or_the_owner_tries_it(
    vault: OpenVault,
) -> None:
    digest = waiting(vault)
    assert "not approved gives a block 2" in refused(lambda: of(vault, "ria", digest, cpu_s=3))
    assert [row["blocks"] for row in of(vault, "owner", digest, cpu_s=3)["at"]] == [2, 5]
    decide(vault, digest, state="approved", most_epsilon=1)
    assert [row["blocks"] for row in of(vault, "ria", digest, cpu_s=60, blocks=5)["at"]] == [5]
    decide(vault, digest, state="declined")
    assert "not approved gives a block 2" in refused(lambda: of(vault, "ria", digest, cpu_s=3))


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"cpu_s": 60.5}, "60 processor seconds at most"),
        # everybody, and eight of 10, 20, 50 and 100 blocks: a run of 200 could not have 60 s each
        ({"cpu_s": 60, "people": PEOPLE}, "1,980 processor seconds, and a plan may have 600"),
        ({"cpu_s": 60, "people": PEOPLE, "blocks": 200}, "need 12,000 processor seconds"),
        ({"blocks": 6}, "tries 2 to 5 blocks"),
        ({"blocks": 1}, "tries 2 to 5 blocks"),
    ],
)
def test_a_plan_holds_nobody_up_for_long(
    vault: OpenVault, terms: dict[str, Any], says: str
) -> None:
    digest = waiting(vault)
    assert says in refused(lambda: of(vault, "owner", digest, **terms))


def test_where_no_sandbox_starts_nothing_is_tried(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert code_of(lambda: planned(vault, mean, people=5)) == "sandbox-missing"


def test_plans_that_wait_have_made_nobody_up(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan holds up to two million values, and may wait for a sandbox for hours."""
    digest = vault["town"].submit(mean, outputs=OUTPUT)["digest"]
    body = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 5}
    meeting, met = threading.Barrier(2), []

    def held(*_: object) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(1)
            met.append(True)
        raise SandboxStopped

    def refused(_: int) -> str:
        return code_of(lambda: vault.call("plan-pipeline", body))

    monkeypatch.setattr(pipelines_service, "run_trial", held)
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(refused, range(3))) == ["sandbox-missing"] * 3
    assert met == []


@pytest.mark.parametrize("client", [DataSet, AsyncDataSet])
def test_python_takes_every_term_that_the_command_takes(client: type) -> None:
    everywhere = {one.name for one in cli.decline.params}  # such as --json
    of_command = {str(one.name) for one in cli.plan.params} - everywhere
    assert {"blocks", "cpu_s", "seed"} <= of_command
    assert of_command <= set(inspect.signature(client.plan).parameters)  # type: ignore[attr-defined]  # of both


@needs_bubbles
def test_the_terms_of_a_plan_in_python_are_obeyed(vault: OpenVault) -> None:
    terms: dict[str, Any] = {"people": 40, "blocks": 5, "seed": "a", "memory_mb": 1024}
    found = planned(vault, mean, cpu_s=2, disk_mb=32, timing="isolated", **terms)
    assert (list(by_blocks(found)), found["seed"], found["people"]) == ([5], "a", 40)
    for term, value in {"cpu_s": 61, "memory_mb": 1, "disk_mb": 1, "timing": "batch"}.items():
        with pytest.raises(Refused):
            planned(vault, mean, **{**terms, term: value})
    assert code_of(lambda: planned(vault, mean, environment="x")) == "bad-environment"
