"""One price for all outputs: whatever is asked for, the losses add up to the price, not to more.

The losses are computed from the noise that is drawn, and wanted errors from the margins shown.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.dp.accounting.privacy_events import ExponentialEvent, JointEvent, privacy_cost
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.price_split_plan import EPSILON_STEP, margin_of
from sfumato.features.pipelines.program_plan import MEDIAN, Program, Run, read_run
from sfumato.sandbox.program_outputs import read_outputs

DELTA = Fraction(1, 10**6)
MANY = {"name": "i", "lower": 0, "upper": 1, "step": "0.001", "shape": [5, 6]}
A = {"name": "a", "lower": 100, "upper": 220, "step": "0.5"}
B = {"name": "b", "lower": 0, "upper": 1, "step": "0.0001"}


def program(*outputs: dict[str, Any]) -> Program:
    return Program("d", "function", "def f(rows): ...", "f", ("h",), read_outputs(list(outputs)))


def planned(*outputs: dict[str, Any], delta: Fraction = Fraction(0), **terms: Any) -> Run:
    return read_run(program(*outputs), {"blocks": 20, **terms}, delta)


def spent(run: Run) -> Fraction:
    """Return the loss of all numbers, by the noise (or the choice) that each of them gets."""
    outputs = run.program.outputs
    if run.take == MEDIAN:
        parts = run.event.parts if isinstance(run.event, JointEvent) else (run.event,)
        assert all(isinstance(part, ExponentialEvent) for part in parts)
        assert len(parts) == run.numbers
        assert tuple(part.epsilon for part in parts) == run.losses
        return sum((part.epsilon for part in parts), Fraction(0))
    pairs = zip(outputs, run.noises, strict=True)
    if run.rho:
        return sum((o.count * o.steps**2 / (2 * n.parameter) for o, n in pairs), Fraction(0))
    return sum((o.count * o.steps / n.parameter for o, n in pairs), Fraction(0))


def test_shares_say_how_much_more_epsilon_a_number_gets() -> None:
    run = planned(A, B, MANY, epsilon=33, split={"a": 2, "b": Decimal("0.5")})
    assert [run.loss(o) for o in run.program.outputs] == [
        Fraction(66) / Fraction("32.5"), Fraction("16.5") / Fraction("32.5"),
        33 / Fraction("32.5"),
    ]  # fmt: skip
    assert spent(run) == 33
    assert run.as_json()["split"] == {"a": "132/65", "b": "33/65", "i": "66/65"}
    assert run.split_json()[2] == {"output": "i", "numbers": 30, "epsilon": float(30 * 66 / 65)}


@pytest.mark.parametrize("split", [None, {}, {"a": 1}, {"a": 3, "b": 3, "i": 3}])
@pytest.mark.parametrize("delta", [Fraction(0), DELTA])
def test_equal_shares_are_the_same_question_as_none(
    split: dict[str, int] | None, delta: Fraction
) -> None:
    plain = planned(A, B, MANY, epsilon=1, delta=delta)
    run = planned(A, B, MANY, epsilon=1, delta=delta, split=split)
    assert run == plain
    assert "split" not in run.as_json()


def test_wanted_errors_find_the_price() -> None:
    run = planned(A, B, error={"a": Decimal("1.5"), "b": Fraction(1, 50)})
    margins = run.margins()
    assert margins["a"] <= 1.5
    assert margins["b"] <= 0.02
    assert run.epsilon == sum(run.losses) == spent(run)
    for output, wanted in zip(run.program.outputs, (Fraction(3, 2), Fraction(1, 50)), strict=True):
        less = replace(
            run,
            split=replace(
                run.split,
                losses=tuple(  # type: ignore[type-var]  # it has one
                    loss - EPSILON_STEP for loss in run.losses
                ),
            ),
        )
        noise = less.noise(output)
        assert noise is not None
        assert margin_of(output, noise, less.counted) > wanted  # no lower price would do


def test_what_is_left_goes_to_the_outputs_without_a_wanted_error() -> None:
    run = planned(A, B, MANY, epsilon=40, error={"a": 2}, split={"b": 2})
    a, b, i = (run.loss(o) for o in run.program.outputs)
    assert (b, a + 32 * i) == (2 * i, Fraction(40))
    assert a == planned(A, error={"a": 2}).epsilon
    assert spent(run) == 40


def test_a_price_with_errors_for_all_is_the_most_that_a_run_costs() -> None:
    run = planned(A, B, epsilon=900, error={"a": 2, "b": Fraction(1, 50)})
    assert run == planned(A, B, error={"a": 2, "b": Fraction(1, 50)})
    with pytest.raises(Refused, match="cost epsilon") as refused:
        planned(A, B, epsilon=Decimal("0.1"), error={"a": 2, "b": Fraction(1, 50)})
    assert refused.value.code == "bad-pipeline"


def test_gaussian_noise_meets_the_errors_of_many_numbers_for_less() -> None:
    error = {"i": Fraction(1, 10)}
    pure = planned(MANY, error=error)
    run = planned(MANY, error=error, delta=DELTA)
    assert (pure.mechanism, run.mechanism) == ("laplace", "gaussian")
    assert run.epsilon < pure.epsilon
    assert run.margins()["i"] <= 0.1
    assert spent(run) == run.rho <= rho_within(run.epsilon, DELTA)
    assert spent(run) > rho_within(run.epsilon - EPSILON_STEP, DELTA)
    assert planned(A, error={"a": 2}, delta=DELTA).mechanism == "laplace"


def test_shares_hold_for_gaussian_noise_and_for_medians() -> None:
    noisy = planned(MANY, A, epsilon=1, delta=DELTA, split={"a": 10})
    i, a = (noisy.loss(o) for o in noisy.program.outputs)
    assert (noisy.mechanism, a) == ("gaussian", 10 * i)
    assert spent(noisy) == noisy.rho == rho_within(Fraction(1), DELTA)
    medians = planned(A, B, epsilon=1, take=MEDIAN, split={"a": 3})
    assert medians.losses == (Fraction(3, 4), Fraction(1, 4))
    assert medians.margins()["a"] < medians.margins()["b"]
    ranks = planned(A, B, take=MEDIAN, error={"a": 4, "b": 9})
    assert ranks.margins()["a"] <= 4
    assert ranks.margins()["b"] <= 9
    assert spent(ranks) == ranks.epsilon


@pytest.mark.parametrize(("wrong", "why"), [
    ({"split": {"c": 1}}, "not an output"), ({"error": {"c": 1}}, "not an output"),
    ({"split": {"a": 1001}}, "a share must lie"), ({"split": {"a": 0}}, "above zero"),
    ({"split": {"a": 1}, "error": {"a": 1}}, "a share and a wanted error"),
    ({"split": [1]}, "one number for each"), ({"error": {"a": -1}}, "above zero"),
    ({"epsilon": None, "error": {"a": 1}}, "give epsilon too"),
    ({"epsilon": None}, "Give epsilon, or a"), ({"error": {"a": "x"}}, "plain number"),
    ({"error": {"b": Fraction(1, 10**20), "a": 9}}, "out of reach"),
    ({"epsilon": Decimal("0.001"), "error": {"a": 1}}, "cost epsilon"),
])  # fmt: skip
def test_what_a_price_does_not_allow_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(A, B, **{"epsilon": 1, **wrong})


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """Draw outputs, and for each a share, a wanted error, or neither."""
    outputs, split, error = [], {}, {}
    for place in range(draw(st.integers(1, 4))):
        steps, step = draw(st.integers(1, 10**6)), draw(st.fractions(Fraction(1, 1000), 50))
        count = draw(st.integers(0, 30))
        lower = draw(st.integers(-100, 100))
        name = f"o{place}"
        outputs.append({
            "name": name, "lower": str(lower), "upper": str(lower + steps * step),
            "step": str(step), **({"shape": [count]} if count else {}),
        })  # fmt: skip
        kind = draw(st.sampled_from(["share", "error", "none"]))
        if kind == "share":
            split[name] = draw(st.fractions(Fraction(1, 1000), 1000, max_denominator=10**6))
        elif kind == "error":
            error[name] = steps * step * draw(st.fractions(Fraction(1, 500), 2))
    return {"outputs": outputs, "split": split, "error": error}


@settings(max_examples=120, deadline=None)
@given(
    terms=asked(),
    epsilon=st.none() | st.fractions(Fraction(1, 1000), 900, max_denominator=10**9),
    delta=st.sampled_from([Fraction(0), DELTA]),
    take=st.sampled_from(["mean", "mean", "median"]),
    trim=st.integers(0, 4),
)
def test_the_losses_never_exceed_the_price_and_margins_meet_the_wanted_errors(
    terms: dict[str, Any], epsilon: Fraction | None, delta: Fraction, take: str, trim: int
) -> None:
    made = program(*terms["outputs"])
    rest = {"trim": 0 if take == MEDIAN else trim, "take": take, "blocks": 20}
    error = {key: 40 * one for key, one in terms["error"].items()} if take == MEDIAN else terms[
        "error"]  # fmt: skip
    try:
        run = read_run(made, {**rest, **terms, "error": error, "epsilon": epsilon}, delta)
    except Refused:
        assume(False)
    whole = rho_within(run.epsilon, run.delta) if run.rho else run.epsilon
    assert spent(run) <= whole
    assert run.epsilon <= (epsilon or 1000)
    cost = privacy_cost(run.event)
    assert cost.epsilon == math.ceil(run.epsilon * 10**9)
    assert getattr(run.event, "delta", 0) == run.spent_delta <= delta
    margins = run.margins()
    for name, wanted in error.items():
        assert margins[name] <= float(wanted)
        if run.take != MEDIAN:
            output = next(one for one in made.outputs if one.name == name)
            noise = run.noise(output)
            assert noise is not None
            assert margin_of(output, noise, run.counted) <= wanted
    if not run.rho and not error:
        shares = [terms["split"].get(o.name, Fraction(1)) for o in made.outputs]
        ratios = {run.loss(o) / s for o, s in zip(made.outputs, shares, strict=True)}
        assert len(ratios) == 1
