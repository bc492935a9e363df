"""Rules that approve programs by themselves: one step outside of any of their limits waits."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.approval_rule import Rule
from sfumato.features.pipelines.program_plan import Program
from sfumato.features.pipelines.release import PipelinePorts
from sfumato.features.pipelines.rule_service import PipelineRules
from sfumato.release.release_order import Asker
from sfumato.sandbox.ports import (
    BlockJob,
    SandboxLimits,
    SandboxStopped,
    TrialJob,
    TrialResult,
)
from sfumato.vault.sealed import Sealed
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 1000, delta = 1e-5 }
[ask]
who = ["researchers", "guests"]
[columns.name]
type = "text"
[columns.height]
type = "number"
lower = 100
upper = 220
step = 0.5
"""
RULE: dict[str, Any] = {
    "users": ["ria"],
    "columns": ["height"],
    "outputs": [{"name": "n", "lower": 0, "upper": 100}],
    "most_epsilon": 2,
    "most_total": 5,
}
OUTPUTS: dict[str, Any] = {"n": (0, 100, 1)}


class Quiet:
    """A sandbox in which every block says the lower end."""

    def __init__(self) -> None:
        self.is_there = True

    def environment(self, own: str = "") -> str:
        """Return something."""
        del own
        return "quiet"

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        """Run one block at a time."""
        del limits, own
        return 1

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise if it was taken away."""
        if not self.is_there:
            raise SandboxStopped

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        numbers = sum(output.count for output in job.outputs)
        return Sealed(np.zeros((len(job.inputs), numbers), dtype=np.int64))

    def run_each(self, job: BlockJob) -> None:
        raise AssertionError

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        raise AssertionError

    def close(self) -> None:
        """Have nothing to let go of."""


class Ending(Quiet):
    """A sandbox during whose check the owner ends the rule."""

    def __init__(self, vault: OpenVault, rule: str) -> None:
        super().__init__()
        self._ended = vault, rule

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        vault, rule = self._ended
        vault.call("end-pipeline-rule", {"data_set": "town", "rule": rule})


@pytest.fixture
def real(tmp_path: Path) -> Iterator[OpenVault]:
    rows = [(f"n{place:02d}", f"n{place:02d}", 150 + place / 2) for place in range(24)]
    source = write_csv(tmp_path / "t.csv", ("who", "name", "height"), rows)
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        made.enrol("ria", "researchers")
        made.enrol("sue", "researchers")
        made.enrol("gus", "guests")
        yield made


@pytest.fixture
def vault(real: OpenVault) -> OpenVault:
    door = real.house.desk.pipelines.door
    real.house.desk.pipelines.__dict__["door"] = PipelinePorts(
        door.ledger, door.engine, Quiet(), door.pool, door.drafts
    )
    return real


def people(rows: Any) -> float:
    return float(len(rows))


def others(rows: Any) -> float:
    return float(rows["height"].nunique())


def looks(rows: Any) -> float:
    return 90.0 if list(rows.columns) == ["who", "height"] else 10.0


def of(vault: OpenVault, user: str) -> OpenVault:
    return OpenVault(vault.house, user)


def ruled(vault: OpenVault, **other: Any) -> Any:
    body = {key: value for key, value in {**RULE, **other}.items() if value is not None}
    return vault.call("set-pipeline-rule", {"data_set": "town", **body})["rule"]


def handed_in(
    vault: OpenVault, user: str = "ria", function: Any = people, **other: Any
) -> Any:  # Any: JSON of the service
    how = {"outputs": OUTPUTS, "columns": ["height"], **other}
    return of(vault, user)["town"].submit(function, **how)


def run(vault: OpenVault, digest: object, user: str = "ria", **terms: Any) -> Any:
    body = {"data_set": "town", "pipeline": digest, "epsilon": 1, "blocks": 4, **terms}
    return of(vault, user).call("run-pipeline", body)


def refusal(vault: OpenVault, *args: Any, **terms: Any) -> str:
    with pytest.raises(Refused) as refused:
        run(vault, *args, **terms)
    return refused.value.code


def spent(vault: OpenVault) -> float:
    accounts = vault.house.ledger.store.accounts()
    return sum(a.spent.epsilon / 1e9 for a in accounts if a.name == "data-set:town")


def notes(vault: OpenVault, kind: str) -> list[Any]:
    entries = vault.house.ledger.store.entries()
    return [json.loads(entry.body) for entry in entries if entry.kind == kind]


def test_what_fits_is_approved_and_the_rule_stands_in_the_chain(vault: OpenVault) -> None:
    rule = ruled(vault)
    made = handed_in(vault)
    assert (made["state"], made["decided_by"]) == ("approved", f"rule:{rule}")
    (approved,) = notes(vault, "pipeline-approved")
    assert (approved["by"], approved["digest"]) == (f"rule:{rule}", made["digest"])
    answer = run(vault, made["digest"], epsilon=2)
    assert answer["receipt"]["rule"] == rule
    (charge,) = notes(vault, "charged")
    assert charge["body"]["rule"] == rule
    (said,) = notes(vault, "pipeline-rule")
    assert (said["rule"], said["most_total"], said["columns"]) == (rule, "5", ["height"])


def test_a_program_that_somebody_else_handed_in_first_is_approved_for_those_whom_a_rule_names(
    vault: OpenVault,
) -> None:
    rule = ruled(vault)
    first = handed_in(vault, "gus")
    assert first["state"] == "waiting"
    made = handed_in(vault)
    assert (made["digest"], made["by"]) == (first["digest"], "ria")
    assert (made["state"], made["decided_by"]) == ("approved", f"rule:{rule}")
    assert run(vault, made["digest"])["receipt"]["rule"] == rule
    assert refusal(vault, made["digest"], "gus") == "pipeline-waits"


def test_what_was_declined_while_it_was_handed_in_once_more_stays_declined(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds none, and is late, must not approve what the owner has declined since."""
    fitting = PipelineRules.fitting

    def late(own: PipelineRules, program: Program, asker: Asker) -> Rule | None:
        monkeypatch.undo()
        first = handed_in(vault)
        decline = {"data_set": "town", "pipeline": first["digest"], "state": "declined"}
        vault.call("decide-pipeline", decline)
        return fitting(own, program, asker)

    ruled(vault)
    monkeypatch.setattr(PipelineRules, "fitting", late)
    second = handed_in(vault)
    assert second["state"] == "declined"
    assert refusal(vault, second["digest"]) == "pipeline-waits"
    assert len(notes(vault, "pipeline-approved")) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"user": "sue"},
        {"user": "gus"},
        {"columns": ["height", "name"]},
        {"columns": ["name"]},
        {"columns": None},  # all of the card's
        {"outputs": {"n": (0, 101, 1)}},
        {"outputs": {"n": (-1, 100, 1)}},
        {"outputs": {"m": (0, 100, 1)}},
        {"outputs": {"n": (0, 100, 1), "m": (0, 100, 1)}},
    ],
    ids=str,
)
def test_one_step_outside_a_limit_waits(vault: OpenVault, how: dict[str, Any]) -> None:
    ruled(vault)
    made = handed_in(vault, **how)
    assert (made["state"], made["decided_by"]) == ("waiting", "")
    assert handed_in(vault, function=others)["state"] == "approved"


def test_one_author_fills_no_place_of_another(vault: OpenVault) -> None:
    ruled(vault, users=["sue"])
    for place in range(20):
        waits = handed_in(vault, outputs={f"n{place}": (0, 100, 1)})
        assert waits["state"] == "waiting"
    with pytest.raises(Refused) as refused:
        handed_in(vault)
    assert refused.value.code == "too-many"
    assert handed_in(vault, "gus")["state"] == "waiting"
    assert handed_in(vault, "sue", others)["state"] == "approved"
    said = {"data_set": "town", "pipeline": waits["digest"], "state": "declined"}
    vault.call("decide-pipeline", said)
    assert handed_in(vault, columns=["name"])["state"] == "waiting"


def test_a_rule_can_be_for_a_group_and_only_for_that(vault: OpenVault) -> None:
    ruled(vault, users=None, groups=["guests"])
    assert handed_in(vault, "gus")["state"] == "approved"
    assert handed_in(vault, "ria", others)["state"] == "waiting"


def test_a_rule_can_be_about_one_text_with_whatever_libraries(vault: OpenVault) -> None:
    text = hashlib.sha256(inspect.getsource(people).encode()).hexdigest()
    ruled(vault, texts=[text])
    assert handed_in(vault)["state"] == "approved"
    assert handed_in(vault, function=others)["state"] == "waiting"


def test_a_run_is_held_to_the_price_of_a_run_and_to_its_delta(vault: OpenVault) -> None:
    ruled(vault)
    digest = handed_in(vault, outputs={"n": (0, 100, 1)})["digest"]
    assert refusal(vault, digest, epsilon=2.001) == "pipeline-waits"
    wide = {"n": {"lower": 0, "upper": 100, "step": 1, "shape": (400,)}}
    array = handed_in(vault, function=others, outputs=wide)["digest"]
    assert refusal(vault, array, epsilon=2, delta=1e-6) == "pipeline-waits"
    assert spent(vault) == 0
    assert run(vault, digest, epsilon=2)
    assert run(vault, array, epsilon=2)
    assert spent(vault) == 4


def test_all_runs_together_are_held_to_the_rules_total(vault: OpenVault) -> None:
    ruled(vault)
    first, second = handed_in(vault)["digest"], handed_in(vault, function=others)["digest"]
    run(vault, first, epsilon=2)
    run(vault, second, epsilon=2)
    assert refusal(vault, second, epsilon=1.001) == "pipeline-waits"
    assert run(vault, first, epsilon=2)["receipt"]["free"]  # the same again is the stored answer
    run(vault, first, epsilon=1)
    assert refusal(vault, first, epsilon=0.001) == "pipeline-waits"
    assert spent(vault) == 5
    shown: Any = vault.call("pipeline-rules", {"data_set": "town"})["rules"]
    assert [Fraction(one["spent"]) for one in shown] == [5]


def test_what_was_never_charged_takes_nothing_of_the_total(vault: OpenVault) -> None:
    ruled(vault)
    digest = handed_in(vault)["digest"]
    sandbox: Any = vault.house.desk.pipelines.door.sandbox
    sandbox.is_there = False
    assert refusal(vault, digest, epsilon=2) == "sandbox-missing"
    sandbox.is_there = True
    run(vault, digest, epsilon=2)
    run(vault, digest, epsilon=1.5)
    run(vault, digest, epsilon=1.25)
    assert refusal(vault, digest, epsilon=0.5) == "pipeline-waits"


class Dead(Quiet):
    """A sandbox that starts, and whose blocks do not come to an end."""

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        del job
        raise SandboxStopped


class Meanwhile(Quiet):
    """A sandbox before which something else happens once."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.acts = [act]

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Let it happen, and then start no sandbox."""
        del limits, own
        if self.acts:
            self.acts.pop()()
            raise SandboxStopped


def boxed(vault: OpenVault, sandbox: Quiet) -> None:
    pipelines = vault.house.desk.pipelines
    pipelines.__dict__["door"] = replace(pipelines.door, sandbox=sandbox)


def taken(vault: OpenVault) -> float:
    shown: Any = vault.call("pipeline-rules", {"data_set": "town"})["rules"]
    return float(sum(Fraction(one["spent"]) for one in shown))


def test_runs_that_fail_take_their_part_each_time_that_they_are_charged(vault: OpenVault) -> None:
    ruled(vault)
    digest = handed_in(vault)["digest"]
    boxed(vault, Dead())
    said = [refusal(vault, digest, epsilon=2, op=f"try-{turn}") for turn in range(4)]
    assert said == ["question-failed"] * 2 + ["pipeline-waits"] * 2
    assert (taken(vault), spent(vault)) == (4, 4)
    assert refusal(vault, digest, epsilon=1, op="last") == "question-failed"
    assert (taken(vault), spent(vault)) == (5, 5)


def test_a_failed_try_that_is_not_charged_again_takes_nothing_more(vault: OpenVault) -> None:
    ruled(vault)
    digest = handed_in(vault)["digest"]
    boxed(vault, Dead())
    for _ in range(4):
        assert refusal(vault, digest, epsilon=1, op="one") == "question-failed"
    assert (taken(vault), spent(vault)) == (1, 1)
    boxed(vault, Quiet())
    assert run(vault, digest, epsilon=1)
    assert (taken(vault), spent(vault)) == (2, 2)


def test_what_one_gives_back_is_never_what_another_was_charged(vault: OpenVault) -> None:
    ruled(vault, users=["ria", "sue"])
    digest = handed_in(vault)["digest"]
    for blocks in range(2, 10):  # sue began first, and no sandbox starts for her
        boxed(vault, Meanwhile(partial(attempted, vault, digest, blocks)))
        assert refusal(vault, digest, "sue", blocks=blocks) in ("sandbox-missing", "pipeline-waits")
        assert taken(vault) == spent(vault)
    assert 0 < spent(vault) <= 5
    boxed(vault, Quiet())
    before = taken(vault), spent(vault)
    assert run(vault, digest, "sue", blocks=2)  # an answer that stands
    assert (taken(vault), spent(vault)) == before


def attempted(vault: OpenVault, digest: object, blocks: int) -> None:
    with contextlib.suppress(Refused):
        run(vault, digest, blocks=blocks)


def test_whom_the_rule_does_not_name_runs_nothing_by_it(vault: OpenVault) -> None:
    ruled(vault)
    digest = handed_in(vault)["digest"]
    assert refusal(vault, digest, "sue") == "pipeline-waits"
    body = {"data_set": "town", "pipeline": digest, "state": "approved", "most_epsilon": 9}
    vault.call("decide-pipeline", body)  # the owner's own word is for all who may ask
    assert run(vault, digest, "sue", epsilon=9)


@pytest.mark.parametrize(
    ("end", "is_read"),
    [
        ("\n", True),
        ("\r\n", True),
        (" \t# b\n", True),
        (" # \x1b[2K\x1b[1A\n", False),
        (" # \r", False),
        (" # \rreturn 2\r\n", False),
        (" # \x08\n", False),
        (" # \x0c\n", False),
        (" # \x00\n", False),
        (" # \x7f\n", False),
    ],
    ids=ascii,
)
def test_owners_read_programs_without_letters_that_their_terminal_obeys(
    vault: OpenVault, end: str, is_read: bool
) -> None:
    outputs = [{"name": "n", "lower": 0, "upper": 100, "step": 1}]
    shape: dict[str, object] = {
        "source": f"def f(rows):{end}    return 1{end}",
        "name": "f",
        "outputs": outputs,
    }
    body: dict[str, object] = {"data_set": "town", "columns": ["height"], **shape}
    if is_read:
        kept = of(vault, "ria").call("submit-pipeline", body)["source"]
        assert kept == f"def f(rows):{end}    return 1{end}".replace("\r\n", "\n")
        return
    with pytest.raises(Refused) as refused:
        of(vault, "ria").call("submit-pipeline", body)
    # NUL is refused before the program's own reader, as over HTTP.
    assert refused.value.code == ("bad-request" if "\0" in end else "bad-pipeline")


def test_a_new_rule_approves_nothing_that_was_handed_in_before(vault: OpenVault) -> None:
    made = handed_in(vault)
    ruled(vault)
    assert handed_in(vault) == made
    assert made["state"] == "waiting"
    assert refusal(vault, made["digest"]) == "pipeline-waits"


def test_an_ended_rule_approves_nothing_and_lets_nothing_run(vault: OpenVault) -> None:
    rule = ruled(vault)
    digest = handed_in(vault)["digest"]
    vault.call("end-pipeline-rule", {"data_set": "town", "rule": rule})
    assert refusal(vault, digest) == "pipeline-waits"
    assert handed_in(vault, function=others)["state"] == "waiting"
    ruled(vault, most_epsilon=3)  # a wider one is another one
    assert refusal(vault, digest) == "pipeline-waits"
    assert len(notes(vault, "pipeline-rule-ended")) == 1


def test_only_the_owner_makes_and_ends_rules_and_others_see_their_own(vault: OpenVault) -> None:
    rule = ruled(vault)
    for verb, more in (("set-pipeline-rule", RULE), ("end-pipeline-rule", {"rule": rule})):
        with pytest.raises(Refused) as refused:
            of(vault, "ria").call(verb, {"data_set": "town", **more})
        assert refused.value.code == "not-allowed"
    seen = {
        user: of(vault, user).call("pipeline-rules", {"data_set": "town"})["rules"]
        for user in ("ria", "sue")
    }
    assert [len(seen[user]) for user in ("ria", "sue")] == [1, 0]  # type: ignore[arg-type]  # JSON


@pytest.mark.parametrize(
    "wrong",
    [
        {"users": []},
        {"users": [], "groups": ["strangers"]},
        {"columns": []},
        {"columns": ["wage"]},
        {"outputs": []},
        {"outputs": [{"name": "n", "lower": 5, "upper": 5}]},
        {"outputs": [{"name": "n", "lower": 0}]},
        {"most_epsilon": 6},
        {"most_epsilon": 0},
        {"texts": ["abc"]},
        {"takes_files": "yes"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_rule_that_is_not_well_made_is_none(vault: OpenVault, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        ruled(vault, **wrong)
    assert handed_in(vault)["state"] == "waiting"


@needs_bubbles
def test_a_column_that_the_rule_does_not_list_is_not_in_the_programs_input(
    real: OpenVault,
) -> None:
    real.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool
    ruled(real, most_epsilon=900, most_total=900)
    digest = handed_in(real, function=looks)["digest"]
    found = run(real, digest, epsilon=900, cpu_s=3)
    assert found["rows"][0][0] == pytest.approx(90, abs=5)


def test_a_rule_that_is_ended_while_a_run_is_made_ready_lets_nothing_run(vault: OpenVault) -> None:
    """And the run has paid nothing, and taken nothing of the rule."""
    rule = ruled(vault)
    digest = handed_in(vault)["digest"]
    door = vault.house.desk.pipelines.door
    vault.house.desk.pipelines.__dict__["door"] = PipelinePorts(
        door.ledger, door.engine, Ending(vault, str(rule)), door.pool, door.drafts
    )
    with pytest.raises(Refused) as refused:
        run(vault, digest)
    assert (refused.value.code, spent(vault), taken(vault)) == ("pipeline-waits", 0, 0)
