"""Split the price of a run over its outputs: equally, by shares, or by wanted errors.

All numbers of a run have one price. The losses of its numbers add up to that price (basic
composition, in epsilon or in rho), and never to more. Everything here is exact: a wanted error is
met by the margin that the run shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.budget import MAX_EPSILON, read_epsilon, read_positive
from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.mechanisms.median_of_blocks import ranks_off
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import bad_run
from sfumato.sandbox.program_outputs import Output

LARGEST: Final = 1000  # largest share of an output, relative to the default share of 1
EPSILON_STEP: Final = Fraction(1, 10**6)  # wanted errors are priced in multiples of it
RHO_STEP: Final = Fraction(1, 10**9)
Losses = tuple[Fraction, ...]  # the loss of one number of each output, in epsilon or in rho
Meets = Callable[[Output, Fraction], bool]


@dataclass(frozen=True)
class PriceSplit:
    """The price of a run, and the loss of one number of each output.

    The losses are in rho if the noise is Gaussian, else in epsilon.
    """

    epsilon: Fraction
    rho: Fraction  # the rho of all numbers together; 0 without Gaussian noise
    losses: Losses


@dataclass(frozen=True)
class SplitTerms:
    """What decides the split of a price: the outputs, the shares and the wanted errors."""

    outputs: tuple[Output, ...]
    shares: Mapping[str, Fraction]  # by output: the share of each of its numbers; 1 if left out
    errors: Mapping[str, Fraction]  # by output: the wanted 95 % margin
    counted: int  # how many blocks count in the average
    delta: Fraction  # the most delta that Gaussian noise may spend; 0 for medians
    is_median: bool

    def pure_meets(self, output: Output, epsilon: Fraction) -> bool:
        """Return True if an output's margin is within the wanted error at this epsilon a number."""
        if self.is_median:
            return ranks_off(epsilon, output.steps, CONFIDENCE) <= self.errors[output.name]
        return self._is_within(output, noise_of(output, epsilon, "laplace"))

    def gaussian_meets(self, output: Output, rho: Fraction) -> bool:
        """Return True if an output's margin is within the wanted error at this rho a number."""
        return self._is_within(output, noise_of(output, rho, "gaussian"))

    def _is_within(self, output: Output, noise: Noise) -> bool:
        most = self.errors[output.name]
        return noise.is_drawable() and margin_of(output, noise, self.counted) <= most

    @property
    def free(self) -> tuple[Output, ...]:
        """Return the outputs without a wanted error, which share what is left of the price."""
        return tuple(one for one in self.outputs if one.name not in self.errors)

    def weight(self, output: Output) -> Fraction:
        """Return the share of each number of an output, relative to the default of 1."""
        return self.shares.get(output.name, Fraction(1))

    def weight_of_all(self, outputs: Iterable[Output]) -> Fraction:
        """Return the sum of the shares of all numbers of these outputs."""
        return sum((one.count * self.weight(one) for one in outputs), Fraction(0))


def noise_of(output: Output, loss: Fraction, kind: str) -> Noise:
    """Return the noise of one number's sum over blocks, for its loss in epsilon or in rho."""
    if kind == "gaussian":
        return Noise("gaussian", gaussian.variance_for(output.steps**2, loss))
    return Noise("laplace", laplace.scale_for(output.steps, loss))


def margin_of(output: Output, noise: Noise, counted: int) -> Fraction:
    """Return the 95 % margin of an average over blocks, exactly, in the output's unit."""
    return output.step * int(noise.margin()) / counted


# --- reading --------------------------------------------------------------------------------------


def read_shares(outputs: tuple[Output, ...], shape: object) -> dict[str, Fraction]:
    """Parse the shares of a price, by the name of an output; refuse invalid ones."""
    found = _by_name(outputs, shape, "split")
    if any(not Fraction(1, LARGEST) <= share <= LARGEST for share in found.values()):
        raise bad_run(f"a share must lie between 1/{LARGEST} and {LARGEST}")
    return found


def read_errors(
    outputs: tuple[Output, ...], shape: object, shares: Mapping[str, Fraction]
) -> dict[str, Fraction]:
    """Parse the wanted errors, by the name of an output; refuse one that also has a share."""
    found = _by_name(outputs, shape, "error")
    for name in found:
        if name in shares:
            raise bad_run(f"output {name!r} has a share and a wanted error; give one of them")
    return found


def _by_name(outputs: tuple[Output, ...], shape: object, what: str) -> dict[str, Fraction]:
    if shape is None:
        return {}
    if not isinstance(shape, Mapping):
        raise bad_run(f"{what} must have one number for each named output")
    known = {output.name for output in outputs}
    for name in shape:
        if name not in known:
            raise bad_run(
                f"{what} names {name!r}, which is not an output of the program; its outputs are "
                f"{', '.join(sorted(known))}"
            )
    return {name: read_positive(value, f"{what} of {name}") for name, value in shape.items()}


# --- splitting ------------------------------------------------------------------------------------


def split_price(terms: SplitTerms, epsilon: object) -> PriceSplit:
    """Return the price of a run and each number's loss; refuse what the price does not allow.

    Args:
        terms: The outputs with their shares and wanted errors.
        epsilon: The price. If every output has a wanted error, it may be left out, or be the most
            that the run may cost.
    """
    if not terms.errors:
        if epsilon is None:
            raise Refused(
                "bad-budget",
                "The run has no price.",
                "Give epsilon, or a wanted error for every output: --epsilon E or "
                "--error OUTPUT=X.",
            )
        given = read_epsilon(epsilon)
        return _narrower(terms, given, {}, {})
    if terms.free:
        if epsilon is None:
            named = ", ".join(one.name for one in terms.free)
            raise bad_run(f"give epsilon too, or a wanted error of {named}")
        return _with_errors(terms, read_epsilon(epsilon))
    found = _cheapest(terms)
    if epsilon is not None and found.epsilon > read_epsilon(epsilon):
        raise _too_dear(found.epsilon, read_epsilon(epsilon))
    return found


def _cheapest(terms: SplitTerms) -> PriceSplit:
    """Return the least price at which every output is within its wanted error."""
    pure = _pure_needs(terms)
    found = [] if pure is None else [_of(terms, _sum(terms, pure), Fraction(0), pure)]
    needs = _gaussian_needs(terms)
    if needs is not None:
        rho = _sum(terms, needs)
        least = _least(lambda epsilon: rho_within(epsilon, terms.delta) >= rho, EPSILON_STEP)
        found += [] if least is None else [_of(terms, least, rho, needs)]
    found = [one for one in found if one.epsilon <= MAX_EPSILON]
    if not found:
        raise _out_of_reach()
    return min(found, key=lambda one: one.epsilon)


def _with_errors(terms: SplitTerms, epsilon: Fraction) -> PriceSplit:
    """Price the wanted errors first, and share what is left of epsilon among the other outputs."""
    pure, needs = _pure_needs(terms), _gaussian_needs(terms)
    if pure is None and needs is None:
        raise _out_of_reach()
    try_pure = pure if pure is not None and _sum(terms, pure) < epsilon else None
    rho = rho_within(epsilon, terms.delta)
    try_gaussian = needs if needs is not None and _sum(terms, needs) < rho else None
    if try_pure is None and try_gaussian is None:
        raise _too_dear(_sum(terms, pure or {}), epsilon)
    return _narrower(terms, epsilon, try_pure, try_gaussian)


def _narrower(
    terms: SplitTerms,
    epsilon: Fraction,
    pure: Mapping[str, Fraction] | None,
    needs: Mapping[str, Fraction] | None,
) -> PriceSplit:
    """Share what is left of the price; choose the noise with the smaller variance.

    `pure` and `needs` have the losses of the outputs with wanted errors, in epsilon and in rho;
    None if such losses do not fit into the price.
    """
    free, made = terms.free, []
    whole = terms.weight_of_all(free)
    if pure is not None:
        each = (epsilon - _sum(terms, pure)) / whole
        losses = {**pure, **{one.name: each * terms.weight(one) for one in free}}
        # in units of the range, Laplace noise of epsilon has the variance 2 / epsilon^2
        variance = sum((one.count * 2 / losses[one.name] ** 2 for one in free), Fraction(0))
        made.append((variance, _of(terms, epsilon, Fraction(0), losses)))
    rho = Fraction(0) if terms.is_median else rho_within(epsilon, terms.delta)
    if needs is not None and rho > 0:
        each = (rho - _sum(terms, needs)) / whole
        losses = {**needs, **{one.name: each * terms.weight(one) for one in free}}
        variance = sum((one.count / (2 * losses[one.name]) for one in free), Fraction(0))
        made.append((variance, _of(terms, epsilon, rho, losses)))
    return min(made, key=lambda pair: pair[0])[1]


def _of(
    terms: SplitTerms, epsilon: Fraction, rho: Fraction, losses: Mapping[str, Fraction]
) -> PriceSplit:
    return PriceSplit(epsilon, rho, tuple(losses[one.name] for one in terms.outputs))


def _sum(terms: SplitTerms, losses: Mapping[str, Fraction]) -> Fraction:
    """Return the loss of all numbers together of those outputs that have a loss."""
    pairs = ((one.count, losses[one.name]) for one in terms.outputs if one.name in losses)
    return sum((count * loss for count, loss in pairs), Fraction(0))


def _pure_needs(terms: SplitTerms) -> dict[str, Fraction] | None:
    return _needs(terms, terms.pure_meets, EPSILON_STEP)


def _gaussian_needs(terms: SplitTerms) -> dict[str, Fraction] | None:
    if terms.is_median or terms.delta == 0:
        return None
    return _needs(terms, terms.gaussian_meets, RHO_STEP)


def _needs(terms: SplitTerms, meets: Meets, step: Fraction) -> dict[str, Fraction] | None:
    """Return the least loss of a number for each wanted error; None if one is out of reach."""
    made: dict[str, Fraction] = {}
    for output in terms.outputs:
        if output.name in terms.errors:
            least = _least(lambda loss, one=output: meets(one, loss), step)  # type: ignore[misc]  # `one` is bound
            if least is None:
                return None
            made[output.name] = least
    return made


def _least(meets: Callable[[Fraction], bool], step: Fraction) -> Fraction | None:
    """Return the least multiple of `step` that is enough, up to the largest epsilon, or None."""
    low, high = 0, int(MAX_EPSILON / step)
    if not meets(high * step):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle * step) else (middle, high)
    return high * step


def _too_dear(needed: Fraction, epsilon: Fraction) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The wanted errors cost epsilon {float(needed):g}, and the run may cost "
        f"{float(epsilon):g} for all outputs together.",
        "Give a larger epsilon, wider errors, or more blocks.",
    )


def _out_of_reach() -> Refused:
    return Refused(
        "bad-pipeline",
        f"The wanted errors are out of reach: they cost more than epsilon {int(MAX_EPSILON)}.",
        "Give wider errors, or more blocks.",
    )
