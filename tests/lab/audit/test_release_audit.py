"""The audit through the whole door: thousands of canaries, one grouped question, a planted twin."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.budget_shares import Share
from sfumato.dp.mechanisms import laplace
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.regression import logistic
from sfumato.lab.audit import regression_audit, stream_audit
from sfumato.lab.audit.audit_suite import END_TO_END, audit_end_to_end
from sfumato.lab.audit.canaries import AuditedQuestion, Canaries, CanaryReleases
from sfumato.lab.audit.one_run_audit import ENOUGH, NOT_SHOWN, OneRunClaim, audit_one_run, judged
from sfumato.lab.audit.out_of_bounds_canaries import (
    BEYOND,
    GROUPS,
    ROWS,
    VALUE,
    OutOfBoundsCanaries,
    Totalled,
)
from sfumato.lab.audit.regression_audit import FITS
from sfumato.lab.audit.release_audit import QUESTIONS, Question, audit_question, put_canaries
from sfumato.lab.audit.stream_audit import CANARIES_A_PERIOD, STREAMS, closed
from sfumato.lab.audit.stream_audit import ROWS as COUNTED
from sfumato.query.measure import Cells, Measure
from sfumato.query.plan import PartSensitivity
from sfumato.vault.engine_port import Prepared, PrepareOrder
from sfumato.vault.sealed import Sealed
from support import postgres_server
from support.small_vaults import make_vault
from support.spark_cluster import need_java

Rows = list[tuple[str, object]]
KEYS = range(20_000)
RARELY = 1e-6  # the noise is real here: a landing is not to fail by it once in ten thousand times


def dice(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def counted(epsilon: float, seed: int) -> Callable[[Rows], dict[object, object]]:
    """Return an honest noisy count of each key."""

    def ask(rows: Rows) -> dict[object, object]:
        random, chance = dice(seed), 1 - np.exp(-epsilon)
        here = {key for _, key in rows}
        noise = random.geometric(chance, size=len(KEYS)) - random.geometric(chance, size=len(KEYS))
        return {
            key: int(key in here) + more for key, more in zip(KEYS, noise.tolist(), strict=True)
        }

    return ask


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_one_run_bounds_an_honest_count_from_close_below(epsilon: float) -> None:
    found = [
        audit_one_run(counted(epsilon, s), KEYS, epsilon=epsilon, dice=dice(s)) for s in range(3)
    ]
    assert not any(one.is_violated for one in found)
    assert max(one.lower for one in found) > 0.5 * epsilon


def test_one_run_catches_noise_of_twice_the_epsilon() -> None:
    assert audit_one_run(counted(2.0, 3), KEYS, epsilon=1, dice=dice()).is_violated


def test_one_run_is_not_fooled_by_answers_that_hang_together() -> None:
    """One shared bit in front of all keys: a bound that took them as independent would alarm."""

    def ask(rows: Rows) -> dict[object, object]:
        shared = int(len(rows) > len(KEYS) / 2)
        return dict.fromkeys(KEYS, 7 * shared)

    lower = [audit_one_run(ask, KEYS, epsilon=0, dice=dice(s)).lower for s in range(20)]
    assert max(lower) == 0


def test_a_false_alarm_of_one_run_is_as_rare_as_it_says() -> None:
    alarms = [
        audit_one_run(counted(1.0, s), KEYS, epsilon=1, alpha=0.2, dice=dice(s)).is_violated
        for s in range(40)
    ]
    assert sum(alarms) <= binom.ppf(1 - 1e-5, 40, 0.2)


def test_a_key_that_is_only_shown_with_its_person_is_caught() -> None:
    def ask(rows: Rows) -> dict[object, object]:
        return dict.fromkeys((key for _, key in rows), 1)

    found = audit_one_run(ask, KEYS, epsilon=3, dice=dice())
    assert found.is_violated
    answers = ask([("a", 0)])
    assert answers.get(1, NOT_SHOWN) == NOT_SHOWN


def test_too_few_keys_are_refused() -> None:
    with pytest.raises(Refused, match="10,000"):
        audit_one_run(counted(1.0, 1), range(9_999), epsilon=1, dice=dice())


def test_a_delta_makes_one_run_say_less() -> None:
    is_in = dice(2).integers(0, 2, size=20_000).astype(bool)
    noisy = is_in.astype(int) + dice(3).geometric(0.9, 20_000)
    answers: dict[Hashable, object] = dict(enumerate(noisy.tolist()))

    def lower(delta: float) -> float:
        claim = OneRunClaim(1.0, delta)
        return judged(claim, answers, list(KEYS), is_in, alpha=1e-4, dice=dice()).lower

    assert lower(0.0) > lower(1e-7) > 0
    assert lower(1e-3) == 0


# --- canaries that share a draw -----------------------------------------------------------------


def shared(epsilon: float, seed: int, *, forgets: bool = False) -> CanaryReleases:
    """Return what streams release of canaries that share their days, two by two."""
    random, days, chance = (
        dice(seed),
        -(-ENOUGH // CANARIES_A_PERIOD),
        1 - np.exp(-epsilon / COUNTED),
    )
    is_in = random.integers(0, 2, size=days * CANARIES_A_PERIOD).astype(np.bool_)
    own = COUNTED * is_in.reshape(days, CANARIES_A_PERIOD).sum(axis=1)
    counts = random.geometric(chance, size=days + 1) - random.geometric(chance, size=days + 1)
    counts[:-1] += own
    if forgets:
        counts[1:] += own
    released: dict[Hashable, list[object]] = {
        key: counts[key // CANARIES_A_PERIOD : key // CANARIES_A_PERIOD + 2].tolist()
        for key in range(len(is_in))
    }
    return CanaryReleases(released, is_in)


def test_canaries_that_share_a_day_bound_an_honest_stream_from_close_below() -> None:
    (stream,) = STREAMS
    found = [audit_question(stream, shared(1.0, s), dice(s), alpha=RARELY) for s in range(4)]
    assert not any(one.is_violated for one in found)
    assert max(one.lower for one in found) > 0.5


def test_canaries_that_share_a_day_tell_twice_the_epsilon_and_rows_that_count_twice() -> None:
    (stream,) = STREAMS
    assert audit_question(stream, shared(2.0, 1), dice()).is_violated
    assert audit_question(stream, shared(1.0, 1, forgets=True), dice()).is_violated


def test_canaries_that_share_a_day_alarm_no_more_often_than_alpha() -> None:
    (stream,) = STREAMS
    alarms = [
        audit_question(stream, shared(1.0, s), dice(s), alpha=0.2).is_violated for s in range(12)
    ]
    assert sum(alarms) <= binom.ppf(1 - 1e-5, 12, 0.2)


# --- through the house ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaries]:
    """Return a vault on DuckDB with twenty thousand keys."""
    folder = tmp_path_factory.mktemp("audit")
    with sfumato.open(make_vault(folder)) as vault:
        yield put_canaries(vault, folder, dice())


def question(name: str) -> Question:
    return next(one for one in QUESTIONS if one.name == name)


@pytest.mark.parametrize("name", ["COUNT(*)", "AVG"])
def test_the_door_is_not_accused_and_its_twin_is(house: Canaries, name: str) -> None:
    found = audit_end_to_end(house, question(name), "DuckDB", seed=1, alpha=RARELY)
    assert not found.audited.is_violated, found.audited.finding
    assert found.audited.samples == 20_000
    assert found.counts, found.positive_control.finding


def test_the_door_is_bounded_from_close_below(house: Canaries) -> None:
    """One way in twenty of halving the keys is unlucky, whatever the noise: so ten are taken."""
    one = question("COUNT(*)")
    seen = one.release(house, 1)
    found = [audit_question(one, seen, dice(s)) for s in range(10)]
    assert max(one.lower for one in found) > 0.5


def test_a_door_that_draws_half_the_noise_is_accused(
    house: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(noise: Noise, count: int, dice: RandomSource) -> object:
        return laplace.sample(noise.parameter / 2, count, dice)

    monkeypatch.setattr(Noise, "sample", half)
    asked = replace(question("COUNT(*)"), sql="SELECT k, COUNT(x) FROM canaries GROUP BY k")
    assert audit_question(asked, asked.release(house, 1), dice()).is_violated


# --- beyond every bound -----------------------------------------------------------------------


def test_of_who_brings_too_much_no_more_shows_than_is_paid_for(house: Canaries) -> None:
    found = audit_end_to_end(house, BEYOND[0], "DuckDB", seed=1, alpha=RARELY)
    assert not found.audited.is_violated, found.audited.finding
    assert found.audited.samples == 20_000
    assert found.counts, found.positive_control.finding


@pytest.mark.parametrize("bound", ["rows", "groups", "clamp"])
def test_a_door_that_forgets_a_bound_is_accused(
    house: Canaries, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """The price is of one row up to 100 in one group, and the engine is told of more."""
    measure, prepare = DuckDBEngine.measure, DuckDBEngine.prepare
    rows, groups = ROWS if bound == "rows" else 1, GROUPS if bound == "groups" else 1

    def measured(engine: DuckDBEngine, table: str, asked: Measure) -> Sealed[Cells]:
        return measure(engine, table, replace(asked, max_rows=rows, max_groups=groups))

    def prepared(engine: DuckDBEngine, order: PrepareOrder) -> Prepared:
        columns = [replace(c, upper=VALUE) if c.name == "x" else c for c in order.card.columns]
        return prepare(engine, replace(order, card=replace(order.card, columns=tuple(columns))))

    monkeypatch.setattr(DuckDBEngine, "measure", measured)
    if bound == "clamp":
        monkeypatch.setattr(DuckDBEngine, "prepare", prepared)
    some = [one for one in BEYOND if one.groups < GROUPS and is_lost(bound, one)]
    loose = [replace(one, data_set=f"without_{bound}", keys=ENOUGH) for one in some]
    found = {one.name: audit_question(one, one.release(house, 1), dice()) for one in loose}
    assert [name for name, audited in found.items() if not audited.is_violated] == []


@pytest.mark.parametrize(
    "name", ["COUNT and SUM in four groups, Gaussian", "SUM within a person's bounds"]
)
def test_many_groups_and_a_persons_sum_are_not_accused_and_their_twins_are(
    house: Canaries, name: str
) -> None:
    found = audit_end_to_end(house, beyond(name), "DuckDB", seed=1, alpha=RARELY)
    assert not found.audited.is_violated, found.audited.finding
    assert found.audited.samples == 20_000
    assert found.counts, found.positive_control.finding


def test_a_door_that_does_not_cut_a_persons_sum_is_accused(
    house: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = DuckDBEngine.measure

    def measured(engine: DuckDBEngine, table: str, asked: Measure) -> Sealed[Cells]:
        uncut = tuple(replace(tally, clamp=None) for tally in asked.tallies)
        return measure(engine, table, replace(asked, tallies=uncut))

    monkeypatch.setattr(DuckDBEngine, "measure", measured)
    loose = replace(beyond("SUM within a person's bounds"), data_set="uncut", keys=ENOUGH)
    assert audit_question(loose, loose.release(house, 1), dice()).is_violated


@pytest.mark.parametrize(
    ("norm", "name"),
    [("l1", "SUM in two groups"), ("l2_squared", "COUNT and SUM in four groups, Gaussian")],
)
def test_a_price_that_forgets_a_persons_groups_is_accused(
    house: Canaries, monkeypatch: pytest.MonkeyPatch, norm: str, name: str
) -> None:
    """The noise is for one group of a person, and more of them count."""
    honest = vars(PartSensitivity)[norm].fget

    def of_one_group(bounded: PartSensitivity) -> int:
        return int(honest(replace(bounded, cells=1)))

    monkeypatch.setattr(PartSensitivity, norm, property(of_one_group))
    cheap = replace(beyond(name), data_set=f"cheap_{norm}")
    assert audit_question(cheap, cheap.release(house, 1), dice()).is_violated


def beyond(name: str) -> OutOfBoundsCanaries:
    return next(one for one in BEYOND if one.name == name)


def is_lost(bound: str, one: OutOfBoundsCanaries) -> bool:
    """Say whether a question without the bound shows more: not every bound is of every question."""
    if isinstance(one, Totalled) or "DISTINCT" in one.asks:  # all rows are looked at anyhow
        return bound == "groups"
    return bound != "clamp" or "x" in one.asks


# --- more than one question -------------------------------------------------------------------


def fit_of_few(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Ask about so many keys, in a data set of their own; `make slow` asks about all."""
    monkeypatch.setattr(regression_audit, "KEYS", keys)
    monkeypatch.setattr(regression_audit, "NAME", f"fitted_{keys}")


def test_a_whole_line_is_not_accused_and_its_twin_is(
    house: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_of_few(monkeypatch, 2 * ENOUGH)
    (line,) = (one for one in FITS if one.maker == "linear")
    found = audit_end_to_end(house, line, "DuckDB", seed=1, alpha=RARELY)
    assert not found.audited.is_violated, found.audited.finding
    assert found.audited.samples == 20_000
    assert found.counts, found.positive_control.finding


def test_rounds_of_a_fit_that_each_pay_all_are_accused(
    house: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question of a fit at the price of the whole: what a share is for."""

    def whole(card: object, terms: Mapping[str, int], parts: Sequence[object]) -> list[Share]:
        del card
        return [Share(Fraction(terms["epsilon"]), Fraction(0)) for _ in parts]

    monkeypatch.setattr(logistic, "shares", whole)
    fit_of_few(monkeypatch, ENOUGH)
    (odds,) = (one for one in FITS if one.maker == "logistic")
    assert audit_question(odds, odds.release(house, 1), dice()).is_violated


def test_a_stream_is_closed_day_by_day_and_only_what_counts_shows(
    house: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = 6
    shorter = {
        "PERIODS": days,
        "IN_ONE": CANARIES_A_PERIOD * days,
        "HALF": days // 2,
        "EXTRA": days + 1,
    }
    for name, instead in shorter.items():
        monkeypatch.setattr(stream_audit, name, instead)
    for _ in range(2):  # the second time it is about other people, as a twin is
        check_days(house)


@pytest.mark.slow
def test_a_stream_of_as_many_days_as_are_audited_is_too(house: Canaries) -> None:
    check_days(house)


def check_days(canaries: Canaries) -> None:
    """At an epsilon at which the noise is nothing: two rows of three, and none of the next day."""
    many = stream_audit.IN_ONE + 2 * CANARIES_A_PERIOD
    seen = closed(canaries, 200, many)  # of all its days, and of two
    periods = [
        seen.is_in[key : key + CANARIES_A_PERIOD].sum() for key in range(0, many, CANARIES_A_PERIOD)
    ]
    last = {stream_audit.PERIODS - 1, len(periods) - 1}
    after = [0 if n in last else 2 * periods[n + 1] for n in range(len(periods))]
    assert seen.released == {
        key: [2 * periods[key // CANARIES_A_PERIOD], after[key // CANARIES_A_PERIOD]]
        for key in range(many)
    }


@pytest.mark.slow
@pytest.mark.parametrize("one", END_TO_END, ids=lambda one: one.name)
def test_no_question_on_duckdb_is_accused_and_all_twins_are(
    house: Canaries, one: AuditedQuestion
) -> None:
    found = audit_end_to_end(house, one, "DuckDB", seed=1, alpha=RARELY)
    assert found.is_well, (found.audited.finding, found.positive_control.finding)


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaries]:
    folder = tmp_path_factory.mktemp("audit-postgres")
    with postgres_server.running() as server:
        url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{server.own_database()}"
        with _open(folder, url) as vault:
            yield put_canaries(vault, folder, dice())


@pytest.fixture(scope="module")
def on_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaries]:
    need_java()
    folder = tmp_path_factory.mktemp("audit-spark")
    with _open(folder, "local[2]") as vault:
        yield put_canaries(vault, folder, dice())


def _open(folder: Path, engine: str) -> OpenVault:
    sfumato.create(folder / "vault", anchor=folder / "anchor", engine=engine)
    return sfumato.open(folder / "vault")


@pytest.mark.slow
@pytest.mark.parametrize("one", END_TO_END, ids=lambda one: one.name)
def test_no_question_on_postgres_is_accused(on_postgres: Canaries, one: AuditedQuestion) -> None:
    found = audit_end_to_end(on_postgres, one, "PostgreSQL", seed=1, alpha=RARELY)
    assert found.is_well, (found.audited.finding, found.positive_control.finding)


@pytest.mark.slow
def test_a_stream_on_spark_is_closed_day_by_day_too(on_spark: Canaries) -> None:
    check_days(on_spark)


@pytest.mark.slow
@pytest.mark.parametrize("one", [*QUESTIONS, *BEYOND, *FITS], ids=lambda one: one.name)
def test_no_question_on_spark_is_accused(on_spark: Canaries, one: AuditedQuestion) -> None:
    found = audit_end_to_end(on_spark, one, "Spark", seed=1, alpha=RARELY)
    assert found.is_well, (found.audited.finding, found.positive_control.finding)
