"""How often the audit at the door accuses a door that is right: no more often than it says.

Each audit has coins of its own. Of three questions they are as long as an audit may be at least: a
data set has many columns of keys, and in each of them another half of ten thousand keys has a
person. Of every question they are short: what is released of many keys at once is looked at some
keys at a time, whose coins no other audit of that length sees.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.lab.audit.audit_suite import END_TO_END
from sfumato.lab.audit.canaries import AuditedQuestion, Canaries, CanaryReleases
from sfumato.lab.audit.one_run_audit import OneRunClaim, coins, judged
from sfumato.lab.audit.regression_audit import FITS
from sfumato.lab.audit.release_audit import audit_question, put_canaries
from sfumato.lab.audit.stream_audit import STREAMS
from support.small_vaults import make_vault, write_csv

KEYS = 10_000
COLUMNS = 25  # audits that a data set serves
ALPHA = 0.05  # at which alarms are to be seen
ASKED = {"COUNT(*)": 1.0, "SUM(x)": 1.0, "AVG(x)": 1.0}


@dataclass(frozen=True, eq=False)
class Flipped:
    """A data set whose columns are keys, and which keys have a person in each."""

    vault: OpenVault
    name: str
    is_in: NDArray[np.bool_]  # by column and key

    def is_accused(self, column: int, aggregate: str) -> bool:
        """Return whether the audit of one question accuses the door; it must not, but by chance."""
        answer = self.vault[self.name].ask(
            f"SELECT FLOOR(k{column} / 1) AS k, {aggregate} FROM {self.name} GROUP BY k",
            epsilon=ASKED[aggregate],
        )
        answers: dict[Hashable, object] = {key: values for key, *values in answer.rows}
        found = judged(
            OneRunClaim(ASKED[aggregate]), answers, range(KEYS), self.is_in[column],
            alpha=ALPHA, dice=np.random.default_rng([2, column]),
        )  # fmt: skip
        assert len(answers) == KEYS
        return found.is_violated


def flipped(vault: OpenVault, folder: Path, number: int) -> Flipped:
    """Add a data set to the vault, its coins flipped anew."""
    dice = np.random.default_rng([1, number])
    is_in = np.array([coins(KEYS, dice) for _ in range(COLUMNS)])
    table = np.full((is_in.sum(axis=1).max(), COLUMNS), -1)
    for column, here in enumerate(is_in):
        table[: here.sum(), column] = dice.permutation(np.flatnonzero(here))
    rows = (
        (f"d{number}-{place}", 1, *("" if key < 0 else key for key in keys))
        for place, keys in enumerate(table.tolist())
    )
    name = f"flipped{number}"
    header = ("who", "x", *(f"k{column}" for column in range(COLUMNS)))
    source = write_csv(folder / f"{name}.csv", header, rows)
    vault.add(name, source, card(number), different_people="whoever wrote this test")
    return Flipped(vault, name, is_in)


def card(number: int) -> dict[str, object]:
    whole = {"type": "integer", "lower": 0, "upper": KEYS - 1}
    return {
        "unit": "who",
        "people": f"people-{number}",
        "version": "1",
        "size": KEYS // 2,
        "budget": {"epsilon": 1000},
        "columns": {
            "x": {"type": "integer", "lower": 0, "upper": 1},
            **{f"k{column}": whole for column in range(COLUMNS)},
        },
    }


def most_alarms(audits: int) -> int:
    """Return how many alarms a right auditor stays below, but once in 100,000."""
    return int(binom.ppf(1 - 1e-5, audits, ALPHA))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path)) as opened:
        yield opened


def test_a_dozen_audits_at_the_door_hardly_ever_alarm(vault: OpenVault, tmp_path: Path) -> None:
    data = flipped(vault, tmp_path, 0)
    alarms = sum(data.is_accused(column, "COUNT(*)") for column in range(12))
    assert alarms <= most_alarms(12)


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ASKED)
def test_two_hundred_audits_at_the_door_alarm_no_more_often_than_alpha(
    vault: OpenVault, tmp_path: Path, aggregate: str
) -> None:
    alarms = sum(
        flipped_one.is_accused(column, aggregate)
        for flipped_one in (flipped(vault, tmp_path, number) for number in range(8))
        for column in range(COLUMNS)
    )
    assert alarms <= most_alarms(8 * COLUMNS)


# --- short audits of every question -----------------------------------------------------------

SHORT = 200  # audits of a question
SIZES = (200, 1000, 5000)  # keys of a short audit: of the first there are so many
TELLING = SIZES[-1]  # keys that are enough to tell twice the price of any question but a fit
OF_A_FIT = 20_000  # of whose twin 5,000 keys tell half of the times
HOUSES = 2  # of twenty thousand keys each
# A stream is closed day by day, for minutes: its audits are the long ones.
ASKED_AT_ONCE = [one for one in END_TO_END if one not in STREAMS]


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Canaries]]:
    """Return vaults with canaries, the coins of each flipped anew."""
    with ExitStack() as stack:
        yield [_house(stack, tmp_path_factory.mktemp("house"), number) for number in range(HOUSES)]


def _house(stack: ExitStack, folder: Path, number: int) -> Canaries:
    vault = stack.enter_context(sfumato.open(make_vault(folder)))
    return put_canaries(vault, folder, np.random.default_rng([3, number]))


def released_of(question: AuditedQuestion, houses: list[Canaries]) -> list[CanaryReleases]:
    """Return what is released in as many houses as two hundred short audits take."""
    found: list[CanaryReleases] = []
    for house in houses:
        found.append(question.release(house, 1))
        if sum(len(seen.is_in) for seen in found) >= SHORT * SIZES[0]:
            break
    return found


def pieces(seen: CanaryReleases, size: int) -> Iterator[CanaryReleases]:
    """Yield what was released of so many keys, and of the next ones, and so on."""
    for start in range(0, len(seen.is_in), size):
        keys = range(start, start + size)
        released: dict[Hashable, Sequence[object]] = {
            key - start: seen.released[key] for key in keys if key in seen.released
        }
        yield CanaryReleases(released, seen.is_in[start : start + size])


def alarms_of(question: AuditedQuestion, found: list[CanaryReleases], size: int) -> tuple[int, int]:
    """Return how many audits of so many keys accuse the door, and how many they were."""
    alarms = [
        audit_question(
            question, piece, np.random.default_rng([4, number, place]), alpha=ALPHA
        ).is_violated
        for number, seen in enumerate(found)
        for place, piece in enumerate(pieces(seen, size))
    ]
    return sum(alarms), len(alarms)


@pytest.mark.slow
@pytest.mark.parametrize("question", ASKED_AT_ONCE, ids=lambda one: one.name)
def test_two_hundred_short_audits_of_a_question_alarm_no_more_often_than_alpha(
    houses: list[Canaries], question: AuditedQuestion
) -> None:
    found = released_of(question, houses)
    alarms = {size: alarms_of(question, found, size) for size in SIZES}
    assert alarms[SIZES[0]][1] >= SHORT
    assert {size: of for size, of in alarms.items() if of[0] > most_alarms(of[1])} == {}


@pytest.mark.slow
@pytest.mark.parametrize("question", ASKED_AT_ONCE, ids=lambda one: one.name)
def test_short_audits_of_too_little_noise_do_alarm(
    houses: list[Canaries], question: AuditedQuestion
) -> None:
    """At twice the price, held against the price: else quiet audits would show nothing."""
    keys = OF_A_FIT if question in FITS else TELLING
    alarms, audits = alarms_of(question, [question.release(houses[0], question.factor)], keys)
    assert alarms > audits / 2
