"""Pipelines as owners and researchers hold them: approved once, charged first, one block a person.

Epsilon is so large that noise is nothing to speak of, where a test is about what is averaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.release import PipelinePorts
from sfumato.release.guarantees.k_anonymity import hand_out
from sfumato.release.receipts import not_dp_json
from sfumato.sandbox.ports import (
    BlockJob,
    SandboxLimits,
    SandboxStopped,
    TrialJob,
    TrialResult,
)
from sfumato.vault.sealed import Sealed
from support.noise_judge import accusations
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
[columns.name]
type = "text"
[columns.height]
type = "number"
lower = 100
upper = 220
step = 0.5
[columns.day]
type = "date"
[columns.well]
type = "boolean"
"""
NAMES = [f"n{place:02d}" for place in range(24)]
ROWS = [
    (who, who, 150 + place / 2, f"2026-01-{1 + place:02d}", "yes" if place % 2 else "")
    for place, who in enumerate(NAMES)
    for _ in range(3)
]
QUICK: dict[str, Any] = {"epsilon": 900, "cpu_s": 3}  # ample: the machine is busy


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    source = write_csv(tmp_path / "t.csv", ("who", "name", "height", "day", "well"), ROWS)
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        made.enrol("ria", "researchers")
        in_no_hurry(made)
        yield made


def in_no_hurry(vault: OpenVault) -> None:
    """Let jobs end when they are done; that they wait for their slot is another test's."""
    vault.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool


def as_ria(vault: OpenVault) -> OpenVault:
    return OpenVault(vault.house, "ria")


def spent(vault: OpenVault) -> dict[str, float]:
    return {a.name: a.spent.epsilon / 1e9 for a in vault.house.ledger.store.accounts()}


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


def people(rows: Any) -> float:
    return float(rows["who"].nunique())


def heights(rows: Any) -> dict[str, float]:
    return {"people": rows["who"].nunique(), "height": rows["height"].sum()}


def trips(rows: Any) -> float:
    if "n07" in set(rows["name"]):
        raise ValueError("n07 is here")
    return 10.0


def looks(rows: Any) -> float:
    kinds: dict[str, Any] = {"who": str, "height": (int, float), "day": str}
    is_well = all(isinstance(v, kind) for name, kind in kinds.items() for v in rows[name])
    is_well &= list(rows.columns) == ["who", "height", "day", "well"] and not len(rows) % 3
    is_well &= all(day.startswith("2026-01-") for day in rows["day"])
    is_well &= set(rows["well"].dropna()) <= {True}
    return 80.0 if is_well else 20.0


@needs_bubbles
def test_blocks_hold_everybody_once_and_empty_ones_count(vault: OpenVault) -> None:
    answer = vault["town"].run(people, outputs={"n": (0, 100, 1)}, blocks=48, **QUICK)
    assert answer.value == pytest.approx(24 / 48, abs=0.1)  # a step of noise is 1/48
    assert answer.guarantee == "central-dp"


@needs_bubbles
def test_several_outputs_share_the_price(vault: OpenVault) -> None:
    outputs = {"people": (0, 50, 1), "height": (0, 50_000, 0.5)}
    answer = vault["town"].run(heights, outputs=outputs, blocks=4, **QUICK)
    total = sum(height for _, _, height, *_ in ROWS)
    assert list(answer.rows[0]) == pytest.approx(
        [6, total / 4], rel=0.2
    )  # twenty scales of the noise
    assert spent(vault)["data-set:town"] == 900
    noise = json.loads(vault.house.ledger.store.charges(2**40, 1)[0].body)["body"]["noise"]
    assert [Fraction(one["scale"]) for one in noise] == [Fraction(50, 450), Fraction(100_000, 450)]


@needs_bubbles
def test_a_block_that_fails_says_the_middle_and_moves_no_other(vault: OpenVault) -> None:
    answer = vault["town"].run(trips, outputs={"n": (0, 100, 1)}, blocks=8, **QUICK)
    assert answer.value == pytest.approx((7 * 10 + 50) / 8, abs=0.5)


@needs_bubbles
def test_a_receipt_says_what_was_handed_out_without_noise(vault: OpenVault) -> None:
    how: dict[str, Any] = {"outputs": {"n": (0, 100, 1)}, "blocks": 2, **QUICK}
    assert "not_dp" not in vault["town"].run(people, **how).receipt
    listed = next(c for c in vault.house.catalogue.cards() if c.name == "town")
    hand_out(vault.house.ledger, listed, by="owner", says="a table")
    told = vault["town"].run(people, **how).receipt["not_dp"]
    assert told == not_dp_json(vault.house.ledger, listed.people)["not_dp"]


@needs_bubbles
def test_the_lowest_and_the_highest_can_be_left_out(vault: OpenVault) -> None:
    answer = vault["town"].run(trips, outputs={"n": (0, 100, 1)}, blocks=8, trim=1, **QUICK)
    assert answer.value == pytest.approx(10, abs=0.5)


@needs_bubbles
def test_a_program_sees_the_columns_that_it_names(vault: OpenVault) -> None:
    columns = ["height", "day", "well"]
    answer = vault["town"].run(
        looks, outputs={"n": (0, 100, 1)}, blocks=6, columns=columns, **QUICK
    )
    assert answer.value == pytest.approx(80, abs=1)


@needs_bubbles
def test_the_same_run_is_the_stored_answer_and_a_second_user_pays_their_own(
    vault: OpenVault,
) -> None:
    how: dict[str, Any] = {"outputs": {"n": (0, 100, 1)}, "blocks": 4, "epsilon": 1, "cpu_s": 2}
    first = vault["town"].run(people, **how)
    again = vault["town"].run(people, **how)
    hers = as_ria(vault)["town"].run(people, **how)
    assert first.rows == again.rows == hers.rows
    assert again.receipt["free"] is True
    assert spent(vault) == {
        "people:town": 1, "data-set:town": 1, "user:town/owner": 1, "user:town/ria": 1,
    }  # fmt: skip


@needs_bubbles
def test_nothing_of_a_run_is_left_behind(vault: OpenVault) -> None:
    answer = vault["town"].run(people, outputs={"n": (0, 100, 1)}, blocks=4, **QUICK)
    terms: Any = answer.receipt["pipeline"]  # JSON
    assert "take" not in terms  # of a mean, as before there were medians
    assert list((vault.house.folder / "runs").iterdir()) == []


@needs_bubbles
def test_a_median_of_blocks_is_chosen_and_says_its_rank(vault: OpenVault) -> None:
    how: dict[str, Any] = {"outputs": {"n": (0, 100, 1)}, "blocks": 8, "take": "median", **QUICK}
    answer = vault["town"].run(trips, **how)  # seven blocks say 10, one fails
    assert answer.value == 10
    assert (answer.std, answer.interval) == (((None,),), ((None,),))
    assert answer.receipt["mechanism"] == "exponential mechanism"
    assert answer.receipt["rank_error"] == {"n": 1.0}
    terms: Any = answer.receipt["pipeline"]  # JSON
    assert terms["take"] == "median"
    charged = vault.house.ledger.store.accounts()
    rho = {a.name: Fraction(a.spent.rho, 10**12) for a in charged}
    assert rho["data-set:town"] == Fraction(900**2, 8)
    assert vault["town"].run(trips, **how).rows == answer.rows  # the stored answer


def draws(rows: Any) -> Any:
    import numpy

    if "n07" in set(rows["name"]):
        return {"image": numpy.zeros((3, 2)), "n": 20}  # another shape than was declared
    return {"image": numpy.arange(6).reshape(2, 3), "n": 20}


IMAGE: dict[str, Any] = {
    "image": {"lower": 0, "upper": 10, "step": 1, "shape": (2, 3)},
    "n": (0, 100, 1),
}


@needs_bubbles
def test_an_array_is_one_release_and_a_wrong_shape_is_the_middle(vault: OpenVault) -> None:
    answer = vault["town"].run(draws, outputs=IMAGE, blocks=8, **QUICK)
    found = np.array(answer.arrays["image"]["values"])
    expected = (7 * np.arange(6).reshape(2, 3) + 5) / 8
    assert np.allclose(found, expected, atol=0.5)
    assert answer.value == pytest.approx(20, abs=1)
    assert answer.receipt["mechanism"] == "laplace"
    assert "image is an array" in repr(answer)


def fives(rows: Any) -> Any:
    import numpy

    return numpy.full(2_000, 5)


@needs_bubbles
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_what_leaves_has_the_noise_that_is_paid(vault: OpenVault, delta: str) -> None:
    """Every block says 5, two thousand times: what is not 5 is noise, by the door's own way."""
    outputs: dict[str, Any] = {"x": {"lower": 0, "upper": 10, "step": 1, "shape": (2_000,)}}
    terms: dict[str, Any] = {**QUICK, "epsilon": 50, "delta": float(delta), "blocks": 4}
    answer = vault["town"].run(fives, outputs=outputs, **terms)
    stored = vault.house.ledger.answer_of("owner", str(answer.receipt["op"]))
    assert stored is not None
    noise = np.array(json.loads(stored)["sums"], dtype=np.int64) - 5 * 4
    if delta == "0":
        assert accusations(noise, "laplace", Fraction(10 * 2_000, 50)) == []
    else:
        rho = rho_within(Fraction(50), Fraction(delta))
        assert accusations(noise, "gaussian", 10**2 * 2_000 / (2 * rho)) == []


def test_the_numbers_of_an_array_share_one_price_as_a_vector(vault: OpenVault) -> None:
    large: dict[str, Any] = {"image": {**IMAGE["image"], "shape": (10, 10)}, "n": (0, 100, 1)}
    digest = vault["town"].submit(draws, outputs=large)["digest"]
    body: dict[str, object] = {"data_set": "town", "pipeline": digest, "epsilon": 1, "blocks": 10}
    pure: Any = vault.call("price-pipeline", body)
    vector: Any = vault.call("price-pipeline", {**body, "delta": 1e-6})
    assert (pure["mechanism"], pure["delta"]) == ("laplace", 0)
    assert (vector["mechanism"], vector["delta"]) == ("gaussian", 1e-6)
    assert vector["error"]["image"] < pure["error"]["image"]


def submitted(vault: OpenVault) -> str:
    return str(vault["town"].submit(people, outputs={"n": (0, 100, 1)})["digest"])


def decided(vault: OpenVault, digest: str, state: str, most: float | None = None) -> object:
    body: dict[str, object] = {"data_set": "town", "pipeline": digest, "state": state}
    return vault.call("decide-pipeline", body | ({} if most is None else {"most_epsilon": most}))


def run(vault: OpenVault, digest: str, epsilon: float = 1) -> object:
    terms = {"epsilon": epsilon, "blocks": 4, "cpu_s": 2}
    return vault.call("run-pipeline", {"data_set": "town", "pipeline": digest, **terms})


@needs_bubbles
def test_a_researchers_program_waits_for_the_owner_and_for_the_price(vault: OpenVault) -> None:
    ria = as_ria(vault)
    digest = submitted(ria)
    assert code_of(lambda: run(ria, digest)) == "pipeline-waits"
    assert code_of(lambda: decided(ria, digest, "approved", 9)) == "not-allowed"
    decided(vault, digest, "approved", 0.5)
    assert code_of(lambda: run(ria, digest)) == "pipeline-waits"
    assert not any(spent(vault).values())
    assert run(ria, digest, 0.5)
    decided(vault, digest, "declined")
    assert code_of(lambda: run(ria, digest, 0.5)) == "pipeline-waits"
    kinds = [entry.kind for entry in vault.house.ledger.store.entries()]
    assert kinds.index("pipeline-approved") < kinds.index("charged")


def test_a_changed_program_or_range_is_another_that_waits(vault: OpenVault) -> None:
    ria = as_ria(vault)
    digest = submitted(ria)
    decided(vault, digest, "approved", 1)
    wider = ria["town"].submit(people, outputs={"n": (0, 101, 1)})
    assert (wider["state"], wider["digest"] == digest) == ("waiting", False)
    assert submitted(ria) == digest


def test_a_program_with_other_libraries_is_another_that_waits(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    ria, sandbox = as_ria(vault), vault.house.desk.pipelines.door.sandbox
    digest = submitted(ria)
    decided(vault, digest, "approved", 1)
    monkeypatch.setattr(sandbox, "environment", lambda own="": "newer")
    assert code_of(lambda: run(ria, digest)) == "pipeline-waits"
    newer = ria["town"].submit(people, outputs={"n": (0, 100, 1)})
    assert (newer["state"], newer["environment"]) == ("waiting", "newer")
    assert newer["digest"] != digest
    assert not any(spent(vault).values())


def test_anothers_waiting_program_is_not_there(vault: OpenVault) -> None:
    vault.enrol("sue", "researchers")
    digest, sue = submitted(as_ria(vault)), OpenVault(vault.house, "sue")
    assert code_of(lambda: run(sue, digest)) == "pipeline-unknown"
    assert sue.call("pipelines", {"data_set": "town"})["pipelines"] == []


def test_where_no_sandbox_starts_nothing_is_run_and_nothing_paid(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    digest = submitted(vault)
    assert code_of(lambda: run(vault, digest)) == "sandbox-missing"
    assert not any(spent(vault).values())


class Broken:
    """A sandbox that is there until it is used."""

    charged: float | None = None

    def __init__(self, vault: OpenVault) -> None:
        self._vault = vault

    def environment(self, own: str = "") -> str:
        """Return something."""
        return "broken"

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        """Run one block at a time."""
        del limits, own
        return 1

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise nothing."""

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        self.charged = spent(self._vault)["data-set:town"]
        rows = [Path(path).read_text() for path in job.inputs]
        raise SandboxStopped from ValueError("".join(rows))

    def run_each(self, job: BlockJob) -> None:
        raise AssertionError

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        raise AssertionError

    def close(self) -> None:
        """Have nothing to let go of."""


def test_who_fails_has_paid_before_a_row_was_read_and_says_nothing(vault: OpenVault) -> None:
    broken = Broken(vault)
    door = vault.house.desk.pipelines.door
    vault.house.desk.pipelines.__dict__["door"] = PipelinePorts(
        door.ledger, door.engine, broken, door.pool, door.drafts
    )
    digest = submitted(vault)
    with pytest.raises(Refused) as refused:
        run(vault, digest)
    assert (refused.value.code, broken.charged) == ("question-failed", 1)
    assert spent(vault)["data-set:town"] == 1
    assert (refused.value.__context__, refused.value.__cause__) == (None, None)
    assert list((vault.house.folder / "runs").iterdir()) == []


class Freezing(Broken):
    """A sandbox during whose check the owner freezes the data set."""

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        self._vault.call("freeze", {"data_set": "town"})


def test_a_freeze_while_a_run_is_made_ready_holds(vault: OpenVault) -> None:
    door = vault.house.desk.pipelines.door
    vault.house.desk.pipelines.__dict__["door"] = PipelinePorts(
        door.ledger, door.engine, Freezing(vault), door.pool, door.drafts
    )
    digest = submitted(vault)
    assert code_of(lambda: run(vault, digest)) == "data-set-frozen"
    assert not any(spent(vault).values())


class Deciding(Broken):
    """A sandbox during whose check the owner decides about the program."""

    def __init__(self, vault: OpenVault, state: str, most: float | None) -> None:
        super().__init__(vault)
        self._said = state, most
        self.digest = ""

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        decided(self._vault, self.digest, *self._said)


@pytest.mark.parametrize(("state", "most"), [("declined", None), ("approved", 0.5)])
def test_what_the_owner_takes_back_while_a_run_is_made_ready_is_not_run(
    vault: OpenVault, state: str, most: float | None
) -> None:
    """The sandbox may be at work for minutes, and a run waits for it before it is paid."""
    sandbox = Deciding(vault, state, most)
    door = vault.house.desk.pipelines.door
    vault.house.desk.pipelines.__dict__["door"] = PipelinePorts(
        door.ledger, door.engine, sandbox, door.pool, door.drafts
    )
    sandbox.digest = submitted(as_ria(vault))
    decided(vault, sandbox.digest, "approved", 1)
    assert code_of(lambda: run(as_ria(vault), sandbox.digest)) == "pipeline-waits"
    assert not any(spent(vault).values())


def test_the_error_is_said_before_anything_is_spent(vault: OpenVault) -> None:
    digest = submitted(vault)
    body: dict[str, object] = {"data_set": "town", "pipeline": digest, "epsilon": 2, "blocks": 50}
    priced: Any = vault.call("price-pipeline", body)
    margin = next(
        t for t in range(1000) if np.exp(-(t + 1) / 50) * 2 / (1 + np.exp(-1 / 50)) <= 0.05
    )
    assert priced["error"]["n"] == pytest.approx(margin / 50)
    assert not any(spent(vault).values())


@pytest.mark.parametrize("wrong", [
    {"blocks": 1}, {"blocks": 10_000}, {"trim": 2, "blocks": 4}, {"cpu_s": 0}, {"memory_mb": 1},
    {"take": "mode"}, {"take": "median", "trim": 1}, {"take": ["median"]},
    {"blocks": True}, {"cpu_s": "1"}, {"blocks": 1000, "cpu_s": 600}, {"blocks": 13, "cpu_s": 600},
])  # fmt: skip
def test_a_run_that_is_not_well_declared_is_refused(vault: OpenVault, wrong: Any) -> None:
    digest = submitted(vault)
    terms = {"epsilon": 1, **wrong}
    body = {"data_set": "town", "pipeline": digest, **terms}
    assert code_of(lambda: vault.call("run-pipeline", body)) == "bad-pipeline"
    assert not any(spent(vault).values())


@pytest.mark.parametrize(
    ("limit", "least", "most"), [("memory_mb", 256, 16_384), ("disk_mb", 16, 4_096)]
)
def test_a_block_may_have_what_is_between_the_limits(
    vault: OpenVault, limit: str, least: int, most: int
) -> None:
    body = {"data_set": "town", "pipeline": submitted(vault), "epsilon": 1, "blocks": 20}
    for fits in (least, most):
        assert vault.call("price-pipeline", {**body, limit: fits})
    for wrong in (least - 1, most + 1):
        found = code_of(lambda: vault.call("price-pipeline", {**body, limit: wrong}))  # noqa: B023
        assert found == "bad-pipeline"


def test_rows_of_nobody_have_no_blocks(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", ("height",), [(170,)])
    with sfumato.open(make_vault(tmp_path)) as vault:
        column = '[columns.height]\ntype = "number"\nlower = 0\nupper = 300'
        text = f'unit = "row"\nbudget = {{ epsilon = 1 }}\n{column}'
        vault.add("town", source, card(text))
        assert code_of(lambda: submitted(vault)) == "bad-pipeline"


@needs_bubbles
def test_a_run_costs_what_its_wanted_errors_cost(vault: OpenVault) -> None:
    outputs = {"people": (0, 50, 1), "height": (0, 50_000, 0.5)}
    terms: dict[str, Any] = {"outputs": outputs, "blocks": 4, "cpu_s": 3}
    answer = vault["town"].run(heights, error={"people": 2, "height": 900}, **terms)
    receipt: Any = answer.receipt
    (people_low, people_high), (low, high) = (bar or (0, 0) for bar in answer.interval[0])
    assert max(people_high - people_low, (high - low) / 450) <= 4
    parts = receipt["split"]
    assert [part["output"] for part in parts] == ["people", "height"]
    assert sum(part["epsilon"] for part in parts) == pytest.approx(receipt["epsilon"])
    assert spent(vault)["people:town"] == pytest.approx(receipt["epsilon"])
    again = vault["town"].run(
        heights, epsilon=receipt["epsilon"], error={"people": 2, "height": 900}, **terms
    )
    assert again.rows == answer.rows  # the same question: free
    shared = vault["town"].run(heights, epsilon=90, split={"height": 8}, **terms)
    assert [part["epsilon"] for part in cast("Any", shared.receipt)["split"]] == [10, 80]


@needs_bubbles
def test_medians_share_a_price_as_asked(vault: OpenVault) -> None:
    outputs = {"people": (0, 50, 1), "height": (0, 50_000, 0.5)}
    answer = vault["town"].run(
        heights, outputs=outputs, blocks=4, take="median", split={"height": 2}, **QUICK
    )
    assert cast("Any", answer.receipt)["rank_error"] == {"people": 1, "height": 1}
    assert [part["epsilon"] for part in cast("Any", answer.receipt)["split"]] == [300, 600]
