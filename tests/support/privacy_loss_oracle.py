"""The privacy loss of a release on two tables: from the noise that was drawn, and no claim of ours.

`drawn_by` records what a release drew, at the samplers; `loss_of` says how far apart the laws of
what leaves are then, for two tables' exact integers. The laws are written down here once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, RHO_UNITS
from sfumato.dp.mechanisms import gaussian, laplace, private_choice, quantile, top_k
from sfumato.dp.mechanisms.gaussian_partition_selection import GaussianThreshold
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.query import partition_selection_price
from sfumato.query.partition_selection_price import PricedPartitionSelection
from sfumato.query.plan import PEOPLE, Plan
from sfumato.query.request import Request
from sfumato.release.guarded_release import accounts_paying, release
from sfumato.release.ledger_guard import Ledger
from sfumato.release.noise_pool import NoisePool
from sfumato.release.release_order import Asker, Order, ReleaseContext
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.key_files import ReceiptKey
from sfumato.storage.sqlite_ledger import create_ledger
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import Engine
from support.ledger_stores import StoppedClock
from support.sensitivity_oracle import Cells, changes, moved_by

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
ORDERS = (1.0, 1.5, 2.0, 8.0)  # of Renyi divergences; 1 is that of Kullback and Leibler
SLACK = 1e-9  # floats compute what is compared


@dataclass(frozen=True)
class Drawn:
    """One call of a sampler: for a part's noise, in a choice, or to select keys."""

    of: str  # "noise", "choice" or "selection"
    kind: str
    parameter: Fraction
    count: int = 0
    beside: Fraction = Fraction(0)


@dataclass
class Draws:
    """What a release drew: in the order of its calls."""

    every: list[Drawn] = field(default_factory=list)
    choices: list[list[Drawn]] = field(default_factory=list)
    _of: str = "noise"

    def of(self, of: str) -> list[Drawn]:
        """Return the calls of one kind."""
        return [one for one in self.every if one.of == of]

    def add(self, kind: str, parameter: Fraction, count: int, beside: Fraction) -> None:
        """Record a call."""
        self.every.append(Drawn(self._of, kind, parameter, count, beside))
        if self._of == "choice":
            self.choices[-1].append(self.every[-1])

    @contextmanager
    def within(self, of: str) -> Iterator[None]:
        """Record what is drawn meanwhile as drawn for that."""
        if of == "choice":
            self.choices.append([])
        self._of = of
        try:
            yield
        finally:
            self._of = "noise"


class FreshPool(NoisePool):
    """Draws when it is asked, so that each call of a sampler is one of the release."""

    def take(self, noise: Noise, count: int) -> Integers:
        """Return that many draws."""
        return noise.sample(count, self.dice)


@contextmanager
def drawn_by() -> Iterator[Draws]:
    """Record every call of a sampler, and whether a choice or a selection makes it."""
    draws = Draws()

    def record(
        patch: pytest.MonkeyPatch, where: Any, name: str, kind: str, read: Callable[..., Any]
    ) -> None:
        real = getattr(where, name)

        def recorded(*args: Any, **named: Any) -> Any:
            parameter, count, *beside = read(*args, **named)
            draws.add(kind, Fraction(parameter), count, Fraction(*beside or (0,)))
            return real(*args, **named)

        patch.setattr(where, name, recorded)

    def mark(patch: pytest.MonkeyPatch, where: Any, name: str, of: str) -> None:
        real = getattr(where, name)

        def marked(*args: Any) -> Any:
            with draws.within(of):
                return real(*args)

        patch.setattr(where, name, marked)

    with pytest.MonkeyPatch.context() as patch:
        record(patch, laplace, "sample", "laplace", lambda scale, count, dice: (scale, count))
        record(patch, gaussian, "sample", "gaussian", lambda v, count, dice: (v, count))
        record(
            patch,
            quantile,
            "exponential_mechanism_rows",
            "exponential",
            lambda u, w, rate, dice: (rate, len(u)),
        )
        record(
            patch, top_k, "exponential_mechanism", "exponential", lambda u, w, rate, dice: (rate, 1)
        )
        record(patch, private_choice, "permute_and_flip", "flip", lambda u, rate, dice: (rate, 1))
        record(
            patch,
            partition_selection_price,
            "keep_partitions",
            "keep",
            lambda counts, e, d, dice: (e, counts.size, d),
        )
        record(
            patch,
            GaussianThreshold,
            "keep",
            "least",
            lambda self, counts, dice: (self.threshold, counts.size),
        )
        mark(patch, PrivateChoice, "choose", "choice")
        mark(patch, PricedPartitionSelection, "keep", "selection")
        yield draws


ASKER = Asker("owner")


def door_to(engine: Engine, folder: Path) -> ReleaseContext:
    """Return a door with a ledger of its own before that engine."""
    store = create_ledger(folder / "ledger.sqlite", StoppedClock(), SystemRandomSource())
    ledger = Ledger(store, FileAnchor(folder / "anchor"), ReceiptKey(bytes(range(32))))
    ledger.begin("vault-created", {})
    return ReleaseContext(ledger, engine, FreshPool(SystemRandomSource()))


def asked(
    door: ReleaseContext, card: Card, table: str, request: Request, op: str
) -> tuple[Draws, PrivacyCost]:
    """Release an answer; return what was drawn, and what the people were charged for it."""
    order = Order(card, table, request, ASKER, op, lambda _: card, fresh=True)
    people = accounts_paying(door.ledger, card, ASKER)[0].spent
    with drawn_by() as draws:
        release(door, order)
    spent = accounts_paying(door.ledger, card, ASKER)[0].spent
    pairs = zip(astuple(spent), astuple(people), strict=True)
    return draws, PrivacyCost(*(after - before for after, before in pairs))


# --- the laws -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """How far apart two laws are: the log-ratio at most, Gaussian rho, divergences by order.

    `epsilon` is that of the pure parts; `delta` and `tail` are what selecting keys may spend.
    """

    epsilon: float = 0.0
    rho: float = 0.0
    divergences: tuple[float, ...] = (0.0,) * len(ORDERS)
    delta: float = 0.0

    def __add__(self, other: Loss) -> Loss:
        pairs = zip(self.divergences, other.divergences, strict=True)
        return Loss(
            self.epsilon + other.epsilon,
            self.rho + other.rho,
            tuple(one + more for one, more in pairs),
            self.delta + other.delta,
        )


def between(law: Floats, other: Floats) -> Loss:
    """Return how far two laws over the same outcomes are apart, in the worse direction."""
    ratio = np.log(law) - np.log(other)
    both = [(law, ratio), (other, -ratio)]
    return Loss(
        float(np.abs(ratio).max()),
        divergences=tuple(max(_divergence(p, r, order) for p, r in both) for order in ORDERS),
    )


def _divergence(law: Floats, ratio: Floats, order: float) -> float:
    if order == 1:
        return float((law * ratio).sum())
    return math.log(float((law * np.exp((order - 1) * ratio)).sum())) / (order - 1)


def of_laplace(moved: Sequence[int], scale: Fraction) -> Loss:
    """Return the loss of numbers that moved, each with Laplace noise; the continuous law's."""
    whole = Loss()
    for number in moved:
        t = abs(number) / float(scale)
        whole += Loss(t, divergences=tuple(_laplace(t, order) for order in ORDERS))
    return whole


def _laplace(t: float, order: float) -> float:
    if order == 1:
        return t + math.expm1(-t)
    a, b = order / (2 * order - 1), (order - 1) / (2 * order - 1)
    up, down = math.log(a) + (order - 1) * t, math.log(b) - order * t
    return float(np.logaddexp(up, down)) / (order - 1)


def of_gaussian(moved: Sequence[int], variance: Fraction) -> Loss:
    """Return the loss of numbers that moved, each with Gaussian noise."""
    rho = sum(number**2 for number in moved) / (2 * float(variance))
    return Loss(rho=rho, divergences=tuple(order * rho for order in ORDERS))


def exponential(utilities: Floats, rate: float) -> Floats:
    """Return the law of the exponential mechanism."""
    weights = np.exp(rate * (utilities - utilities.max()))
    return np.asarray(weights / weights.sum())


def flip(utilities: Floats, rate: float) -> Floats:
    """Return the law of permute-and-flip: who shows heads and is before all other heads.

    At a uniform time x each other one has not yet shown heads with chance 1 - coin * x.
    """
    coins = np.exp(rate * (utilities - utilities.max()))
    nodes, weights = np.polynomial.legendre.leggauss(40)  # exact for 80 candidates
    times = (nodes + 1) / 2
    law = []
    for place, coin in enumerate(coins):
        others = np.delete(coins, place)
        law.append(coin * float((weights / 2 * np.prod(1 - np.outer(times, others), axis=1)).sum()))
    return np.array(law)


def peels(utilities: Floats, rate: float, names: int) -> Floats:
    """Return the law of the lists of that many, each chosen among those that are left."""
    if names == 0:
        return np.ones(1)
    law = exponential(utilities, rate)
    rest = [peels(np.delete(utilities, i), rate, names - 1) for i in range(utilities.size)]
    return np.concatenate([chance * after for chance, after in zip(law, rest, strict=True)])


def rank_utilities(histogram: Sequence[int], at: Fraction) -> Floats:
    """Return how far the wanted rank is from those of each point, in parts of a row."""
    counts = np.array(histogram, dtype=np.int64)
    wanted = at.numerator * int(counts.sum())
    up_to = at.denominator * np.cumsum(counts)
    below = up_to - at.denominator * counts
    off = np.maximum(0, np.maximum(below - wanted, wanted - up_to))
    return np.asarray(-off, dtype=np.float64)


# --- the loss of a release ------------------------------------------------------------------------


def loss_of(plan: Plan, draws: Draws, whole: Cells, without: Cells) -> Loss:
    """Return what a release that drew so loses on two tables' integers."""
    noises, choices = draws.of("noise"), iter(draws.choices)
    are_noisy = [bounded.part.choice is None for bounded in plan.parts]
    # of private keys noise is drawn twice: once to see that it can be, then for what is shown
    mine = iter(noises[len(noises) - sum(are_noisy) :])
    loss = _of_selection(plan, draws, whole, without)
    for place, is_noisy in enumerate(are_noisy):
        moved = changes(whole, without, plan.tally_of(place))
        if is_noisy:
            drawn, flat = next(mine), [number for cell in moved for number in cell]
            of = {"laplace": of_laplace, "gaussian": of_gaussian}[drawn.kind]
            loss += of(flat, drawn.parameter)
        else:
            loss += _of_choice(plan, place, next(choices, []), whole, without)
    return loss


def _of_choice(
    plan: Plan, place: int, drawn: Sequence[Drawn], whole: Cells, without: Cells
) -> Loss:
    choice, tally = plan.parts[place].part.choice, plan.tally_of(place)
    assert choice is not None
    loss = Loss()
    if not drawn:
        return loss  # no key was shown, so nothing was chosen
    first = drawn[0]
    assert {(one.kind, one.parameter) for one in drawn} == {(first.kind, first.parameter)}
    nothing = [0] * plan.parts[place].part.tally.size
    for cell in {*whole, *without}:
        pair = [cells[cell][tally] if cell in cells else nothing for cells in (whole, without)]
        if pair[0] == pair[1]:
            continue
        if first.kind == "laplace":  # all noisy counts decide, so they lose at most what these do
            moved = [one - other for one, other in zip(*pair, strict=True)]
            loss += of_laplace(moved, first.parameter)
            continue
        laws = [_law(choice.kind, h, choice.at, choice.names, first) for h in pair]
        loss += between(*laws)
    return loss


def _law(kind: str, histogram: Sequence[int], at: Fraction, names: int, drawn: Drawn) -> Floats:
    rate = float(drawn.parameter)
    if kind == "quantile":
        return exponential(rank_utilities(histogram, at), rate)
    counts = np.array(histogram, dtype=np.float64)
    return flip(counts, rate) if drawn.kind == "flip" else peels(counts, rate, names)


def _of_selection(plan: Plan, draws: Draws, whole: Cells, without: Cells) -> Loss:
    if not plan.selects_keys:
        return Loss()
    moved = changes(whole, without, plan.measure.tallies.index(PEOPLE))
    assert all(moved_by([cell]) == 1 for cell in moved)
    keys = len(moved)
    drawn = {one.kind: one for one in draws.of("selection")}
    if "keep" in drawn:
        each, delta = float(drawn["keep"].parameter), float(drawn["keep"].beside)
        divergences = tuple(order * keys * each**2 / 2 for order in ORDERS)
        return Loss(keys * each, 0.0, divergences, keys * delta)
    variance, least = drawn["gaussian"].parameter, float(drawn["least"].parameter)
    tail = math.erfc((least - 1) / math.sqrt(2 * variance)) / 2  # one's own key is shown
    return of_gaussian([1] * keys, variance) + Loss(delta=keys * tail)


def gaussian_delta(rho: float, epsilon: float) -> float:
    """Return the delta of continuous Gaussian noise of that rho at epsilon (Balle, Wang 2018)."""
    if rho == 0:
        return 0.0
    mu = math.sqrt(2 * rho)

    def below(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)


def excess(loss: Loss, charged: PrivacyCost) -> list[str]:
    """Return in which of the two tests a loss is more than was charged; empty if in none."""
    epsilon, rho = charged.epsilon / EPSILON_UNITS, charged.rho / RHO_UNITS
    delta, rho_delta = charged.delta / DELTA_UNITS, charged.rho_delta / DELTA_UNITS
    spent = loss.delta + gaussian_delta(loss.rho, max(epsilon - loss.epsilon, 0.0))
    found = []
    if loss.epsilon > epsilon * (1 + SLACK) or spent > delta * (1 + SLACK):
        found.append(f"epsilon {loss.epsilon}, rho {loss.rho} and delta {spent}: over {charged}")
    if loss.delta > rho_delta * (1 + SLACK):
        found.append(f"a delta of {loss.delta} beside rho: over {charged}")
    for order, divergence in zip(ORDERS, loss.divergences, strict=True):
        if divergence > order * rho * (1 + SLACK) + SLACK:
            found.append(f"a divergence of {divergence} at order {order}: over {charged}")
    return found
