"""The auditor accuses what is broken and nothing else, and its bounds hold whatever it searched."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.refusal import Refused
from sfumato.lab.audit import Audited, audit, audit_order_2, audit_rho, auditor
from sfumato.lab.audit.auditor import could_prove, run_audit, runs_of
from sfumato.lab.audit.correct_mechanisms import CONTROLS, discrete_laplace, randomised_response
from sfumato.lab.audit.epsilon_lower_bounds import (
    Score,
    epsilon_above,
    most_told,
    one_run_above,
    one_run_chance,
    relative_entropy,
    share_of,
    surely_above,
)
from sfumato.lab.audit.guess_event import VOTES, Event, Trials, View, best_event, lowest_bits
from sfumato.lab.audit.outputs import read_outputs
from sfumato.lab.audit.privacy_claim import EpsilonClaim, OrderTwoClaim, RhoClaim

Random = np.random.Generator


def dice(seed: int = 1) -> Random:
    return np.random.default_rng(seed)


# --- the arithmetic of the bound --------------------------------------------------------------


@given(st.integers(1, 500), st.floats(0, 1), st.floats(1e-6, 0.2))
def test_clopper_and_pearson_agree_with_the_binomial_itself(
    n: int, share: float, alpha: float
) -> None:
    right = round(n * share)
    p = surely_above(right, n, alpha)
    chance = stats.binom.sf(right - 1, n, p) if right else 1.0
    assert chance == pytest.approx(alpha, rel=1e-6) if right else p == 0


@given(st.integers(1, 2000), st.floats(1e-6, 0.5), st.floats(1e-6, 0.2))
def test_what_a_delta_may_tell_is_the_binomials_own_quantile(
    n: int, delta: float, alpha: float
) -> None:
    told = most_told(n, delta, alpha)
    assert stats.binom.sf(told, n, delta) <= alpha * (1 + 1e-9)
    assert told == 0 or stats.binom.sf(told - 1, n, delta) > alpha * (1 - 1e-9)


def test_what_a_delta_tells_is_neither_a_proof_nor_a_wrong_guess() -> None:
    delta, level = 0.05, 1e-4
    told = most_told(1000, delta, level / 2)
    assert epsilon_above(Score(1000, told, told), delta, level) == 0
    more = epsilon_above(Score(1000, told + 100, told + 100), delta, level)
    assert more == pytest.approx(epsilon_above(Score(1000, 100, 100), 0.0, level / 2))
    assert more > 2


def test_all_epochs_together_spend_no_more_than_alpha() -> None:
    assert sum(share_of(1.0, k) for k in range(1, 100_000)) == pytest.approx(1, abs=1e-4)


def test_one_run_without_a_delta_is_the_binomial_bound() -> None:
    score = Score(1000, 300, 260)
    assert one_run_above(score, 0.0, 0.01) == epsilon_above(score, 0.0, 0.01)


def test_one_run_with_a_delta_reckons_as_the_theorem_says() -> None:
    m, r, v, epsilon, delta = 500, 120, 110, 1.3, 1e-3
    q = 1 / (1 + math.exp(-epsilon))
    gains, total = [0.0], 0.0
    for i in range(1, v + 1):  # as the paper's own listing adds them up
        total += stats.binom.pmf(v - i, r, q)
        gains.append(total / i)
    expected = stats.binom.sf(v - 1, r, q) + max(gains) * delta * 2 * m
    assert one_run_chance(Score(m, r, v), epsilon, delta) == pytest.approx(min(expected, 1))
    assert one_run_above(Score(m, r, v), delta, 0.01) < one_run_above(Score(m, r, v), 0.0, 0.01)


def test_relative_entropy_is_that_of_two_coins() -> None:
    p, q = 0.7, 0.2
    expected = stats.entropy([p, 1 - p], [q, 1 - q])
    assert relative_entropy(p, q) == pytest.approx(expected, abs=1e-8)


# --- going on where it looks suspicious --------------------------------------------------------


def leak_in_the_tails(data: int, runs: int, random: Random) -> NDArray[np.float64]:
    """Laplace noise; on one side, four runs in ten thousand say which side it is."""
    found = np.rint(random.laplace(size=runs) * 1024) / 1024 + data
    if data:
        found[random.random(runs) < 4e-4] = 1e6
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_a_rare_leak_that_the_usual_runs_miss_is_found_by_going_on(seed: int) -> None:
    usual = audit(leak_in_the_tails, 0, 1, epsilon=1, most=131_072, dice=dice(seed))
    assert (usual.is_violated, usual.samples) == (False, 131_072)
    gone_on = audit(leak_in_the_tails, 0, 1, epsilon=1, dice=dice(seed))
    assert gone_on.is_violated
    assert 131_072 < gone_on.samples <= 1_048_576


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_claimed_rho_that_looks_wrong_is_pursued_too(seed: int) -> None:
    def narrow(data: int, runs: int, random: Random) -> NDArray[np.float64]:
        return np.rint(random.normal(scale=0.4, size=runs) * 1024) / 1024 + data  # rho is 3.1

    run = runs_of(narrow, 0, 1, dice(seed))
    few = run_audit(RhoClaim(1.0), run, alpha=1e-4, most=1024, dice=dice(seed))
    more = run_audit(
        RhoClaim(1.0), run, alpha=1e-4, most=1024, max_runs_if_suspicious=131_072, dice=dice(seed)
    )
    assert (few.is_violated, few.samples, more.is_violated) == (False, 1024, True)


def test_what_looks_well_is_not_run_on() -> None:
    held = audit(discrete_laplace, 0, 1, epsilon=1.5, dice=dice())
    assert (held.is_violated, held.samples) == (False, 131_072)


def test_a_limit_that_was_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "_is_suspicious", lambda *_looked_at: True)
    held = audit(discrete_laplace, 0, 1, epsilon=1.5, most=4096, dice=dice())
    assert held.samples == 4096


@pytest.mark.parametrize("mechanism", [randomised_response, discrete_laplace])
def test_going_on_accuses_a_right_mechanism_no_more_often_than_alpha(
    mechanism: Callable[..., Any],
) -> None:
    """Its claim is exactly true, so that it often looks suspicious."""

    def audited(seed: int) -> Audited:
        run, claim = runs_of(mechanism, 0, 1, dice(seed)), EpsilonClaim(1.0)
        return run_audit(
            claim, run, alpha=0.05, most=512, max_runs_if_suspicious=8192, dice=dice(seed)
        )

    found = [audited(seed) for seed in range(200)]
    assert sum(one.is_violated for one in found) <= most_alarms(200, 0.05)
    assert sum(one.samples > 512 for one in found) > 3


# --- false alarms -----------------------------------------------------------------------------


def bounds_of(
    mechanism: Callable[..., Any], audits: int, *, alpha: float, delta: float = 0.0
) -> NDArray[np.float64]:
    def lower(seed: int) -> float:
        terms = {"epsilon": 1.0, "delta": delta, "alpha": alpha}
        return audit(mechanism, 0, 1, **terms, most=2048, dice=dice(seed)).lower

    return np.array([lower(seed) for seed in range(audits)])


def most_alarms(audits: int, alpha: float) -> int:
    """Return how many alarms a right auditor stays below, but once in 100,000."""
    return int(stats.binom.ppf(1 - 1e-5, audits, alpha))


@pytest.mark.parametrize("name", CONTROLS)
def test_a_right_mechanism_is_accused_no_more_often_than_alpha(name: str) -> None:
    mechanism, delta = CONTROLS[name]
    lower = bounds_of(mechanism, 40, alpha=0.05, delta=delta)
    assert np.sum(lower > 1) <= most_alarms(40, 0.05)
    assert np.median(lower) > 0.4  # and it looked: a bound of zero would never alarm


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_a_right_mechanism_is_accused_no_more_often_in_a_thousand_audits(name: str) -> None:
    mechanism, delta = CONTROLS[name]
    lower = bounds_of(mechanism, 1000, alpha=0.05, delta=delta)
    assert np.sum(lower > 1) <= most_alarms(1000, 0.05)


def test_two_equal_data_sets_are_hardly_ever_told_apart() -> None:
    alarms = [
        audit(randomised_response, 0, 0, epsilon=0, alpha=0.05, most=1024, dice=dice(s)).lower > 0
        for s in range(60)
    ]
    assert sum(alarms) <= most_alarms(60, 0.05)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20), st.floats(0.2, 2.0))
def test_no_search_over_useless_outputs_makes_a_bound(seed: int, width: int, spread: float) -> None:
    """Many columns of pure noise: something always looks telling, and nothing may be proved."""
    useless = noise_alone(width, spread)
    assert audit(useless, 0, 1, epsilon=0, alpha=1e-6, most=1024, dice=dice(seed)).lower == 0


def noise_alone(width: int, spread: float = 1.0) -> Callable[..., Any]:
    def useless(data: int, runs: int, random: Random) -> NDArray[np.float64]:
        del data
        return np.round(random.normal(0, spread, size=(runs, width)), 1)

    return useless


def rarely(rare: Callable[[int], object], gather: Callable[..., Any]) -> Callable[..., Any]:
    """Return a mechanism that says nothing of the data, and once in 300 something of another kind.

    All outputs of a call are given together, as they come of a loop.
    """

    def useless(data: int, runs: int, random: Random) -> object:
        del data
        drawn = zip(random.random(runs) < 1 / 300, random.integers(0, 3, runs), strict=True)
        return gather([rare(int(value)) if is_rare else int(value) for is_rare, value in drawn])

    return useless


@pytest.mark.parametrize("gather", [list, np.array])
@pytest.mark.parametrize("rare", [lambda _: None, lambda value: value + 0.5, lambda value: [value]])
def test_a_rare_kind_of_output_does_not_set_the_sides_apart(
    rare: Callable[[int], object], gather: Callable[..., Any]
) -> None:
    """Where one side had one and the other had none, all outputs of the two once looked unlike."""
    if gather is np.array and isinstance(rare(0), list):
        gather = partial(np.array, dtype=object)
    mechanism = rarely(rare, gather)
    for seed in range(12):
        assert audit(mechanism, 0, 1, epsilon=0, most=2048, dice=dice(seed)).lower == 0


class OfItsOwn(Exception):
    """An error that no library has."""


@pytest.mark.parametrize("error", [Exception, OfItsOwn, MemoryError, StopIteration, SystemExit])
def test_whatever_a_mechanism_raises_is_an_output_of_it(error: type[BaseException]) -> None:
    def raising(data: int) -> int:
        if data:
            raise error("a value")
        return 0

    assert audit(raising, 0, 1, epsilon=1, dice=dice(1)).is_violated


@pytest.mark.parametrize("put", [lambda one: one, lambda one: [one]], ids=["bare", "list"])
def test_whole_numbers_that_become_others_when_somebody_joins_are_seen(
    put: Callable[[float], object],
) -> None:
    def nulled(data: int) -> object:
        return put(float(data - data) if data else 0)

    found = audit(nulled, 0, 1, epsilon=1, dice=dice(1))
    assert found.is_violated


class Peeking(EpsilonClaim):
    """A faulty auditor: it searches on the very runs that are to prove something."""

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        return super().proved(best_event(fresh, target=0, delta=0), fresh, alpha)


def test_an_auditor_that_proves_on_what_it_searched_would_be_noticed() -> None:
    lower = []
    for seed in range(20):
        random = dice(seed)
        run = runs_of(noise_alone(12), 0, 1, random)
        found = run_audit(Peeking(0), run, alpha=0.05, most=1024, dice=random)
        lower.append(found.lower)
    assert sum(bound > 0 for bound in lower) > most_alarms(20, 0.05)


# --- what may be audited ----------------------------------------------------------------------


def caught(mechanism: Callable[..., Any], D: object, D2: object) -> Audited:
    return audit(mechanism, D, D2, epsilon=1, most=4096, dice=dice())


def test_a_mechanism_may_return_one_number_at_a_time() -> None:
    found = caught(lambda data: data, 3.0, 4.0)
    assert found.is_violated
    assert found.samples == 256


def test_a_mechanism_may_ask_for_dice() -> None:
    def fair(data: int, random: Random) -> int:
        return int(data ^ (random.random() >= 1 / (1 + math.exp(-1))))

    assert not audit(fair, 0, 1, epsilon=1, most=1024, dice=dice()).is_violated
    assert audit(fair, 0, 1, epsilon=0.1, most=4096, dice=dice()).is_violated


@pytest.mark.parametrize(
    ("one", "other", "view"),
    [
        ("yes", "no", "the output"),
        ({"a": 1}, {"a": 1, "b": 1}, "the keys of the output"),
        ([1, 2], [1, 2, 3], "the length of the output"),
        ({"a": None}, {"a": 0.0}, "the kind of the output[a]"),
        (0.0, -0.0, "the output"),
        (b"x", b"yz", "the length of the output"),
    ],
)
def test_any_kind_of_output_gives_its_difference_away(
    one: object, other: object, view: str
) -> None:
    assert caught(lambda data: data, one, other).is_violated
    marks = read_outputs([one, other], 2).codes
    numbers = read_outputs([one, other], 2).numbers
    found = (marks | numbers)[view]
    is_told = found[0] != found[1] or math.copysign(1, found[0]) != math.copysign(1, found[1])
    assert is_told


def test_a_refusal_and_its_code_are_outputs() -> None:
    def fussy(data: int) -> int:
        if data:
            raise Refused("no-bounds", "This is a test.", "Go on.")
        raise Refused("no-aggregate", "This is a test.", "Go on.")

    found = caught(fussy, 0, 1)
    assert found.is_violated


def test_the_words_of_a_refusal_and_its_facts_are_outputs_too() -> None:
    def by_words(data: int) -> int:
        raise Refused("no-bounds", f"This is a test of {data}.", "Go on.")

    def by_facts(data: int) -> int:
        raise Refused("no-bounds", "This is a test.", "Go on.", left=data)

    assert caught(by_words, 0, 1).is_violated
    assert caught(by_facts, 0, 1).is_violated


def test_the_last_bit_of_a_number_that_no_float_holds_is_seen() -> None:
    def many(data: int, runs: int, random: Random) -> NDArray[np.int64]:
        return 2 * random.integers(0, 2**61, size=runs) + data

    def one(data: int, random: Random) -> int:
        return int(2 * random.integers(0, 2**61)) + data

    assert caught(many, 0, 1).is_violated
    assert caught(one, 0, 1).is_violated


def test_a_text_behind_many_others_is_looked_at() -> None:
    def wordy(data: int, random: Random) -> dict[str, str]:
        return {f"t{place}": str(random.random()) for place in range(12)} | {"z": "ny"[data]}

    assert caught(wordy, 0, 1).is_violated


def test_a_missing_column_on_one_side_is_told() -> None:
    def shape(data: int, runs: int, random: Random) -> NDArray[np.float64]:
        return random.normal(size=(runs, 2 + data))

    assert caught(shape, 0, 1).is_violated


def test_drift_over_time_is_no_difference_between_the_sides() -> None:
    clock = iter(range(10**9))
    assert not caught(lambda _: next(clock), 0, 1).is_violated


def test_many_outputs_that_each_tell_little_are_seen_together() -> None:
    """Eight numbers move one up, one down: no sum, no order and no single one shows much."""
    signs = np.tile([1, -1], 4)

    def faint(data: int, runs: int, random: Random) -> NDArray[np.float64]:
        return np.round(data * signs + random.laplace(0, 4, size=(runs, 8)), 3)

    found = audit(faint, 0, 1, epsilon=0.8, most=16_384, dice=dice())
    assert found.is_violated
    assert found.view in ("all outputs together", "a weighed vote of all outputs")


def test_six_sums_under_gaussian_noise_are_weighed_together() -> None:
    """Each moves by a sixth of the rho, and none of them alone shows what is too much."""

    def noisy(deviation: float) -> Callable[..., Any]:
        def run(data: int, runs: int, random: Random) -> NDArray[np.float64]:
            noise = random.normal(size=(runs, 6)) * spread
            return np.asarray(np.round(data * np.arange(1, 7) + noise))

        spread = deviation * np.arange(1, 7) * np.sqrt(6)
        return run

    rho = 1 / (2 * 2.5**2)
    assert not audit_rho(noisy(2.5), 0, 1, rho=rho, most=16_384, dice=dice()).is_violated
    found = audit_rho(noisy(2.5 / 2), 0, 1, rho=rho, most=16_384, dice=dice())
    assert found.is_violated
    assert found.view == "a weighed sum of all outputs"


@pytest.mark.parametrize("runs", [256, 511, 512, 4096])
def test_so_many_runs_prove_no_more_than_they_say(runs: int) -> None:
    found = audit(lambda data: data, 0, 1, epsilon=math.inf, most=runs, dice=dice())
    assert found.lower == could_prove(runs, 0.0)
    assert could_prove(runs, 0.01) < found.lower
    assert could_prove(255, 0.0) == 0


def test_the_lowest_set_bit_of_a_float_is_found() -> None:
    found = lowest_bits(np.array([1.0, 0.5, 6.0, 0.1, 0.0, np.nan, -8.0]))
    assert found[:3].tolist() == [0, -1, 1]
    assert found[3] == -55
    assert np.isnan(found[4:6]).all()
    assert found[6] == 3


def test_a_rho_is_proved_from_both_ends_at_half_of_alpha_each() -> None:
    sides = np.repeat([False, True], 100)
    said = np.concatenate([np.arange(100) < 10, np.arange(100) < 80]).astype(np.float64)
    event = Event(View("", lambda seen: seen.column("the output")), np.array([0.5]),
                  np.array([0, 1], dtype=np.int8), 0.0)  # fmt: skip
    found = RhoClaim(1.0).proved(event, Trials(read_outputs(said, 200), sides), 0.01)
    hit = stats.binomtest(80, 100).proportion_ci(0.99).low
    alarm = stats.binomtest(10, 100).proportion_ci(0.99).high
    both = (stats.entropy([p, 1 - p], [q, 1 - q]) for p, q in ((hit, alarm), (alarm, hit)))
    assert found == pytest.approx(max(both), abs=1e-8)


def test_a_divergence_of_order_2_is_proved_of_the_same_ends() -> None:
    sides = np.repeat([False, True], 100)
    said = np.concatenate([np.arange(100) < 10, np.arange(100) < 80]).astype(np.float64)
    event = Event(View("", lambda seen: seen.column("the output")), np.array([0.5]),
                  np.array([0, 1], dtype=np.int8), 0.0)  # fmt: skip
    found = OrderTwoClaim(1.0).proved(event, Trials(read_outputs(said, 200), sides), 0.01)
    hit = stats.binomtest(80, 100).proportion_ci(0.99).low
    alarm = stats.binomtest(10, 100).proportion_ci(0.99).high
    ends = ((hit, alarm), (1 - alarm, 1 - hit))
    both = (math.log(p**2 / q + (1 - p) ** 2 / (1 - q)) for p, q in ends)
    assert found == pytest.approx(max(both), abs=1e-8)


def test_many_numbers_with_laplace_noise_are_told_apart_by_a_vote() -> None:
    """Ten of them at epsilon 0.2 each: two in all, and none tells more than a little."""

    def noisy(data: int, runs: int, random: np.random.Generator) -> Any:  # of numbers
        return np.round(1000 * (data + random.laplace(0, 5, size=(runs, 10))))

    found = audit(noisy, 0, 1, epsilon=1, dice=dice())
    assert found.is_violated
    assert found.view == VOTES
    assert not audit(noisy, 0, 1, epsilon=2, dice=dice()).is_violated


def test_a_rho_is_bounded_for_gaussian_noise_and_its_double_is_caught() -> None:
    def noisy(deviation: float) -> Callable[..., Any]:
        return lambda data, runs, random: np.round(data + random.normal(0, deviation, size=runs))

    rho = 1 / (2 * 4.0**2)
    right = audit_rho(noisy(4.0), 0, 1, rho=rho, dice=dice())
    assert not right.is_violated
    assert right.lower > 0.2 * rho
    assert audit_rho(noisy(2.0), 0, 1, rho=rho, dice=dice()).is_violated


@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
@pytest.mark.parametrize("hold", [audit_rho, audit_order_2])
def test_gaussian_noise_of_one_sign_breaks_any_rho(
    hold: Callable[..., Audited], pair: tuple[int, int]
) -> None:
    """What the one side never says is one output in six: whoever guesses often misses it."""

    def positive(data: int, runs: int, random: np.random.Generator) -> Any:  # of numbers
        return data + np.abs(np.round(random.normal(0, 2.4, size=runs)))

    claim = {"rho" if hold is audit_rho else "divergence": 0.0852}
    assert hold(positive, *pair, **claim, most=8192, dice=dice()).is_violated


def test_the_same_dice_give_the_same_finding() -> None:
    one, other = (audit(discrete_laplace, 0, 2, epsilon=1, dice=dice(5)) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("terms", [{"epsilon": -1}, {"epsilon": math.nan}, {"alpha": 0},
                                   {"delta": 1}, {"most": 255}])  # fmt: skip
def test_terms_that_make_no_sense_are_refused(terms: dict[str, float]) -> None:
    with pytest.raises(Refused) as refused:
        audit(discrete_laplace, 0, 1, **{"epsilon": 1.0, **terms}, dice=dice())  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.code == "bad-request"


def test_the_finding_never_says_private() -> None:
    right = audit(discrete_laplace, 0, 1, epsilon=1, most=1024, dice=dice())
    assert "cannot prove that a mechanism is private" in right.finding
    assert "at least" in right.finding
    wrong = audit(discrete_laplace, 0, 3, epsilon=1, most=8192, dice=dice())
    assert wrong.finding.startswith("The claim of epsilon 1 is broken")
    assert "at confidence 99.99 %" in wrong.finding


def test_without_scipy_an_audit_is_refused_and_says_what_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(Refused) as refused:
        audit(discrete_laplace, 0, 1, epsilon=1, dice=dice())
    assert refused.value.code == "not-installed"
    assert "sfumato[lab]" in refused.value.next_step


def test_the_command_line_starts_without_the_auditor() -> None:
    program = "import sys, sfumato.app.vault, sfumato.cli; print([m for m in sys.modules if "
    program += "m.startswith(('scipy', 'sfumato.lab.audit', 'sfumato.lab.broken.zoo'))])"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
