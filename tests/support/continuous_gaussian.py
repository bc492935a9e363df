"""The continuous Gaussian mechanism, to compare ours with: no mechanism is calibrated by it."""

from __future__ import annotations

import math


def analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least sigma of the continuous Gaussian mechanism (Balle, Wang 2018)."""
    low, high = 0.0, 1.0
    while _analytic_delta(high, epsilon) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _analytic_delta(middle, epsilon) > delta else (low, middle)
    return high * sensitivity


def _analytic_delta(sigma: float, epsilon: float) -> float:
    """Return delta at sensitivity 1: Phi(1/2s - es) - exp(e) Phi(-1/2s - es), s being sigma."""
    half, shift = 1 / (2 * sigma), epsilon * sigma
    return _normal_below(half - shift) - math.exp(epsilon + _log_normal_below(-half - shift))


def _normal_below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _log_normal_below(x: float) -> float:
    if x > -30:
        return math.log(_normal_below(x))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi))
