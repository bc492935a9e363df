"""A run in a batch: only if the operator and the owner allow it, and every receipt says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.settings import change_settings, settings_of
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.audit.sheet_verification import check_sheet
from sfumato.sandbox.ports import TrialJob, TrialResult
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 1000, delta = 1e-5 }
[caps]
user = { epsilon = 1000 }
[ask]
who = ["researchers"]
[columns.height]
type = "number"
lower = 100
upper = 220
"""
HEIGHTS = [150, 151, 152, 153, 160, 161, 162, 163, 170, 171, 172, 173]
TERMS: dict[str, object] = {"epsilon": 400, "blocks": 4, "cpu_s": 3}
FRAME = {"mean": (100, 220)}


def mean(rows: Any) -> float:
    return float(rows["height"].mean())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = make_vault(tmp_path)
    rows = [(f"n{place}", height) for place, height in enumerate(HEIGHTS)]
    source = write_csv(tmp_path / "t.csv", ("who", "height"), rows)
    with sfumato.open(made) as vault:
        vault.add("town", source, card(CARD))
        vault.enrol("ria", "researchers")
    return Path(made)


@pytest.fixture
def vault(place: Path) -> Iterator[OpenVault]:
    change_settings(place, timing="batch")
    with sfumato.open(str(place)) as opened:
        opened.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool
        yield opened


def as_ria(vault: OpenVault) -> OpenVault:
    return OpenVault(vault.house, "ria")


def submitted(vault: OpenVault) -> str:
    return str(vault["town"].submit(mean, outputs=FRAME)["digest"])


def decide(vault: OpenVault, digest: str, **words: object) -> Any:
    said = {"data_set": "town", "pipeline": digest, "state": "approved", "most_epsilon": 900}
    return vault.call("decide-pipeline", {**said, **words})


def run(vault: OpenVault, digest: str, **words: object) -> Any:
    body = {"data_set": "town", "pipeline": digest, **TERMS, **words}
    return vault.call("run-pipeline", body)


def price(vault: OpenVault, digest: str, **words: object) -> Any:
    return vault.call("price-pipeline", {"data_set": "town", "pipeline": digest, **TERMS, **words})


def refusal(act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value


@needs_bubbles
def test_a_reviewed_program_runs_in_a_batch_and_says_so_everywhere(vault: OpenVault) -> None:
    digest = submitted(as_ria(vault))
    assert decide(vault, digest, timing="batch")["timing"] == "batch"
    ria = as_ria(vault)
    assert price(ria, digest)["timing"].startswith("batch: ")
    said = run(ria, digest, job_s=60)
    assert said["receipt"]["timing"].startswith("batch: ")
    assert "outside the guarantee" in said["receipt"]["timing"]
    assert said["receipt"]["pipeline"]["job_s"] == "60"
    assert 140 < said["rows"][0][0] < 182
    charged = [e for e in vault.house.ledger.store.entries() if e.kind == "charged"]
    assert "side by side" in str(charged[-1].body)
    sheet: Any = vault.call("sheet", {"entry": str(charged[-1].seq)})
    assert sheet["timing"] == said["receipt"]["timing"]
    assert check_sheet(sheet) == ()
    assert check_sheet({**sheet, "timing": "isolated"}) != ()
    again = run(ria, digest, timing="isolated")  # the same question: the stored answer, as it ran
    assert again["rows"] == said["rows"]
    assert again["receipt"]["timing"] == said["receipt"]["timing"]
    assert again["receipt"]["pipeline"]["job_s"] == "60"
    isolated = run(ria, digest, timing="isolated", blocks=5)
    assert isolated["receipt"]["timing"].startswith("isolated: ")


@needs_bubbles
def test_an_approval_alone_allows_no_batch(vault: OpenVault) -> None:
    digest = submitted(as_ria(vault))
    decide(vault, digest)
    assert price(as_ria(vault), digest)["timing"].startswith("isolated: ")
    refused = refusal(lambda: run(as_ria(vault), digest, timing="batch"))
    assert (refused.code, "owner" in refused.cause) == ("pipeline-waits", True)


@needs_bubbles
def test_before_it_is_approved_for_one_the_owner_alone_tries_a_program_in_a_batch(
    vault: OpenVault,
) -> None:
    digest = submitted(as_ria(vault))
    plan = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 20}
    asked = {**plan, "timing": "batch"}

    def fails() -> bool:
        return refusal(lambda: as_ria(vault).call("plan-pipeline", asked)).code == "pipeline-waits"

    timings: list[bool] = []
    sandbox = vault.house.desk.pipelines.door.sandbox
    try_out = sandbox.try_out

    def heard(job: TrialJob) -> tuple[TrialResult, ...]:
        timings.append(job.limits.is_batch)
        return try_out(job)

    sandbox.try_out = heard  # type: ignore[method-assign]
    assert fails()
    assert vault.call("plan-pipeline", asked)["spent"] is False
    vault.call("plan-pipeline", plan)  # without the word, as the program may run
    decide(vault, digest)
    assert fails()
    decide(vault, digest, timing="batch")
    assert as_ria(vault).call("plan-pipeline", plan)["spent"] is False
    as_ria(vault).call("plan-pipeline", {**plan, "timing": "isolated"})
    assert timings == [True, False, True, False]


@needs_bubbles
def test_the_owners_own_program_needs_the_word_too(vault: OpenVault) -> None:
    digest = submitted(vault)
    assert refusal(lambda: run(vault, digest, timing="batch")).code == "pipeline-waits"


@needs_bubbles
def test_a_taken_back_batch_is_not_run(vault: OpenVault) -> None:
    digest = submitted(as_ria(vault))
    decide(vault, digest, timing="batch")
    pipelines = vault.house.desk.pipelines
    check = pipelines.door.sandbox.check

    def takes_back(*words: object, **named: object) -> None:
        check(*words, **named)  # type: ignore[arg-type]  # what the run has given
        decide(vault, digest)

    pipelines.door.sandbox.check = takes_back  # type: ignore[method-assign]
    assert refusal(lambda: run(as_ria(vault), digest)).code == "pipeline-waits"
    assert not any(a.spent.epsilon for a in vault.house.ledger.store.accounts())
    pipelines.door.sandbox.check = check  # type: ignore[method-assign]
    assert run(as_ria(vault), digest)["receipt"]["timing"].startswith("isolated: ")


@needs_bubbles
def test_without_the_operator_no_program_runs_in_a_batch(place: Path) -> None:
    with sfumato.open(str(place)) as vault:
        assert vault.timing == "isolated"
        digest = submitted(vault)
        decide(vault, digest, timing="batch")
        assert price(vault, digest)["timing"].startswith("isolated: ")
        refused = refusal(lambda: run(vault, digest, timing="batch"))
        assert (refused.code, "operator" in refused.cause) == ("pipeline-waits", True)
        plan = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 20}
        assert refusal(lambda: vault.call("plan-pipeline", {**plan, "timing": "batch"}))
        vault.allow_timing("batch")
    with sfumato.open(str(place)) as vault:
        assert vault.timing == "batch"
        assert price(vault, digest)["timing"].startswith("batch: ")
    assert settings_of(place)["timing"] == "batch"


@pytest.mark.parametrize("wrong", [
    {"timing": "fast"}, {"timing": 1}, {"job_s": 10}, {"timing": "isolated", "job_s": 10},
    {"timing": "batch", "job_s": 0}, {"timing": "batch", "job_s": 7201},
    {"timing": "batch", "job_s": "x"},
])  # fmt: skip
def test_wrong_words_for_the_time_are_refused(vault: OpenVault, wrong: dict[str, object]) -> None:
    digest = submitted(vault)
    if wrong.get("timing") == "batch":
        decide(vault, digest, timing="batch")
    with pytest.raises(Refused) as refused:
        price(vault, digest, **wrong)
    assert refused.value.code in ("bad-pipeline", "malformed")
