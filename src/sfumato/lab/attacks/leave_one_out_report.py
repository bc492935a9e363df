"""Report leave-one-out reconstruction: broken releases, our release, and its theoretical bound.

Each run draws new noise and a random target, so the runs are independent trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks.leave_one_out import distances_from_mean, rebuild, rebuild_from_others
from sfumato.lab.attacks.leave_one_out_private import SLACK, Attacker
from sfumato.lab.broken.leave_one_out_shared_noise import FloatArray, broken_releases, loo_means
from sfumato.lab.broken.leave_one_out_std_noise import loo_std_releases
from sfumato.lab.guess_plot import strips
from sfumato.lab.platform_noise import EPSILONS
from sfumato.lab.sample_data import HEIGHT_BOUNDS, HEIGHTS
from sfumato.lab.table_files import numbers

EXACT: Final = "the exact release"
SHARED: Final = "one noise for all (the notebook)"
STD: Final = "noise as wide as the means are apart"
MAX_GUESSES: Final = 5_000_000  # the most guesses for each release
KNOWN: Final = 0  # index of the person known to the attacker of the first two releases
TITLE: Final = "Reconstructing people from leave-one-out means"
KNOWS: Final = (
    "Against the exact release and the notebook's release, the attacker knows one "
    "person. Against the others, the attacker knows everybody except the target."
)
GUESSES: Final = "The attacker's guesses and the true values"


@dataclass(frozen=True)
class Values:
    """The attacked values, their public bounds, and the error that counts as right."""

    values: tuple[float, ...]
    bounds: tuple[float, float] = HEIGHT_BOUNDS  # the public bounds, as the data card declares them
    within: float = 1.0
    of: str = "height"

    def attacker(self, epsilon: float) -> Attacker:
        """Return the attacker of a private release at that epsilon."""
        return Attacker(self.bounds, epsilon, self.within)

    @property
    def hidden(self) -> tuple[float, ...]:
        """Return the values that the attacker has to guess: all but the one that they know."""
        return self.values[KNOWN + 1 :]

    @property
    def odd(self) -> int:
        """Return the index of the most unusual value: the one farthest from the median."""
        return int(np.argmax(np.abs(np.array(self.values) - np.median(self.values))))


def attack_means(
    asked: Values,
    dice: np.random.Generator,
    *,
    runs: int = 1000,
    epsilons: Sequence[float] = EPSILONS,
) -> Report:
    """Report how often each release of means reveals a random person; plot the guesses."""
    _check(asked, runs)
    panels = _guesses(asked, dice, runs, epsilons)
    targets = dice.integers(KNOWN + 1, len(asked.values), size=runs)
    hits = {name: _hits(guesses, asked, targets) for name, guesses in panels.items()}
    ours = {_ours(epsilon): epsilon for epsilon in epsilons}
    finding = " ".join(_finding(asked, panels, {name: hits[name] / runs for name in ours}))
    return Report(
        attack="loo",
        title=TITLE,
        knows=KNOWS,
        measure=f"a random person is guessed with an error of at most {asked.within:g}",
        successes=tuple(_success(name, hits[name], asked, ours.get(name), runs) for name in panels),
        finding=finding,
        guessing=_guessing(asked),
        pictures=(
            strips(panels, np.array(asked.values), title=GUESSES, summary=finding, of=asked.of),
        ),
    )


def _check(asked: Values, runs: int) -> None:
    if runs * len(asked.values) > MAX_GUESSES:
        most = MAX_GUESSES // len(asked.values)
        raise Refused(
            "bad-request", "The number of guesses is too large.", f"Give at most {most:,} runs."
        )
    if len(asked.values) < 3:
        raise Refused(
            "bad-request", "The attack needs at least three people.", "Give at least three values."
        )
    if not asked.bounds[0] < asked.bounds[1] or asked.within < 0:
        raise Refused(
            "bad-request",
            "The lower bound is not below the upper bound, or `within` is negative.",
            "Give a lower bound below the upper bound, and a `within` of at least 0.",
        )


def spread_of_errors(releases: FloatArray, values: Sequence[float]) -> float:
    """Return the largest spread of the errors within a run, for an attacker who knows nobody.

    Zero means that all values are reconstructed up to one shared constant.
    """
    errors = np.atleast_2d(distances_from_mean(releases)) - np.asarray(values, dtype=np.float64)
    return float(np.ptp(errors, axis=1).max())


def _guesses(
    asked: Values, dice: np.random.Generator, runs: int, epsilons: Sequence[float]
) -> Mapping[str, FloatArray]:
    values, known = asked.values, {KNOWN: asked.values[KNOWN]}
    exact = np.tile(rebuild(loo_means(values), known), (runs, 1))
    shared = rebuild(broken_releases(values, dice, runs=runs), known)
    wide = rebuild_from_others(loo_std_releases(values, dice, runs=runs), values)
    panels = {EXACT: exact, SHARED: shared, STD: wide}
    for epsilon in epsilons:
        attacker = asked.attacker(epsilon)
        sums = attacker.releases(values, dice, runs=runs)
        panels[_ours(epsilon)] = attacker.guesses(sums, values)
    return panels


def _ours(epsilon: float) -> str:
    return f"ours, epsilon = {epsilon:g}"


def _hits(guesses: FloatArray, asked: Values, targets: NDArray[np.int64]) -> int:
    looked_at = guesses[np.arange(len(targets)), targets]
    errors = np.abs(looked_at - np.asarray(asked.values)[targets])
    return int((errors <= asked.within + SLACK).sum())


def _success(name: str, hits: int, asked: Values, epsilon: float | None, runs: int) -> SuccessRate:
    if epsilon is None:
        return SuccessRate(name, hits, runs)
    bound = asked.attacker(epsilon).bound(asked.hidden)
    return SuccessRate(name, hits, runs, epsilon=epsilon, bound=bound)


def _guessing(asked: Values) -> float:
    """Return the success rate of guessing the middle of the range, where the prior is highest."""
    middle = sum(asked.bounds) / 2
    return float(np.mean(np.abs(np.array(asked.hidden) - middle) <= asked.within + SLACK))


def _finding(
    asked: Values, panels: Mapping[str, FloatArray], ours: Mapping[str, float]
) -> tuple[str, ...]:
    worst = float(np.abs(panels[SHARED] - asked.values).max())
    odd = asked.values[asked.odd]
    off = float(np.median(np.abs(panels[STD][:, asked.odd] - odd)))
    rates = ", ".join(f"{100 * rate:.0f} % ({_epsilon(name)})" for name, rate in ours.items())
    return (
        f"One shared noise value hides nobody: all {len(asked.values)} people are "
        f"reconstructed in each of {len(panels[SHARED]):,} releases (largest error "
        f"{worst:.0e}). An attacker who knows nobody still gets all values, up to one "
        "shared shift.",
        f"Noise scaled by the means' standard deviation reveals the outlier, {odd:g}, "
        f"with an error of {off:.2g}.",
        f"From sfumato's release, the attacker is right in {rates}; without any "
        f"release, guessing is right in {100 * _guessing(asked):.0f} %.",
    )


def _epsilon(name: str) -> str:
    return name.removeprefix("ours, ")


def _run(setting: Setting) -> Report:
    path, column = setting.text("data", str(HEIGHTS)), setting.text("column", "Height")
    low, high = HEIGHT_BOUNDS
    asked = Values(
        tuple(numbers(path, column)),
        bounds=(setting.number("lower", low), setting.number("upper", high)),
        within=setting.number("within", 1.0),
        of=column.lower(),
    )
    epsilons = setting.epsilons()
    return attack_means(asked, setting.dice, runs=setting.runs, epsilons=epsilons)


ATTACK: Final = Attack(
    "loo",
    "reconstruct everybody from means that leave one person out",
    _run,
    options={
        "data": "a .csv or .tsv file instead of the synthetic heights",
        "column": "its column of numbers",
        "lower": "the lower bound on the card",
        "upper": "the upper bound on the card",
        "within": "the largest error of a right guess",
        **EPSILONS_OPTION,
    },
)
