"""The judge of noise accuses what is wrong and lets pass what is right."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.mechanisms.noise import Noise
from support.noise_judge import Kind, accusations
from support.seeded_dice import SeededDice

DRAWS = 20_000
CASES: list[tuple[Kind, Fraction]] = [
    ("laplace", Fraction(10)),
    ("laplace", Fraction(400_000)),
    ("gaussian", Fraction(100)),
    ("gaussian", Fraction(10**10)),
]


def drawn(
    kind: Kind, parameter: Fraction, seed: int = 1
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(Noise(kind, parameter).sample(DRAWS, SeededDice(seed)))


def scaled(kind: Kind, parameter: Fraction, factor: Fraction) -> Fraction:
    return parameter * (factor if kind == "laplace" else factor**2)


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_honest_noise_is_acquitted(kind: Kind, parameter: Fraction) -> None:
    for seed in range(20):
        assert accusations(drawn(kind, parameter, seed), kind, parameter) == []


@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(9, 10), Fraction(11, 10)])
@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_noise_of_another_width_is_accused(
    kind: Kind, parameter: Fraction, factor: Fraction
) -> None:
    for seed in range(20):
        noise = drawn(kind, scaled(kind, parameter, factor), seed)
        assert "width" in accusations(noise, kind, parameter)


@pytest.mark.parametrize(("kind", "parameter"), CASES)
@pytest.mark.parametrize("block", [1, 2, 4096, 10_000])
def test_repeated_noise_is_accused(kind: Kind, parameter: Fraction, block: int) -> None:
    noise = np.resize(drawn(kind, parameter)[:block], DRAWS)
    assert "repeats" in accusations(noise, kind, parameter)


def test_one_sided_and_shifted_noise_is_accused() -> None:
    noise = drawn("laplace", Fraction(10))
    assert "centre" in accusations(np.abs(noise), "laplace", Fraction(10))
    assert "centre" in accusations(noise + 1, "laplace", Fraction(10))


def test_rounded_noise_is_accused() -> None:
    noise = drawn("laplace", Fraction(10)) // 10 * 10
    assert "shape" in accusations(noise, "laplace", Fraction(10))
