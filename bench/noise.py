"""Compare how fast exact noise is drawn here and in OpenDP, on one machine in one run.

`ours_ns` and `opendp_ns` are nanoseconds a draw. `million_ms` is the time of a million draws when
the noise tables already exist. `cold_million_ms` includes making the tables. `cold_block_ms` is how
long a door waits at a new scale, for one block of its noise pool. The random numbers come from the
generator of that pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Final, Literal

import opendp.prelude as dp

from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.mechanisms.noise import Noise
from sfumato.release.noise_pool import BLOCK
from sfumato.system.randomness import BulkRandomSource

Kind = Literal["laplace", "gaussian"]
SCALES: Final = (10, 100, 1000, 10**4, 10**8, 10**12)
DRAWS: Final = 1_000_000
OPENDP_DRAWS: Final = 20_000
TARGET_MS: Final = 60  # for a million draws with warm tables
REPEATS: Final = 3
CACHES: Final = (
    "_top_table",
    "_digit_table",
    "_magnitude_table",
    "_zero_table",
    "_half_table",
    "_above_table",
    "_weights",
)


def run() -> list[dict[str, object]]:
    """Return one row per mechanism and scale: nanoseconds a draw, ours and OpenDP's."""
    dp.enable_features("contrib")
    return [_row(kind, scale) for kind in ("laplace", "gaussian") for scale in SCALES]


def _row(kind: Kind, scale: int) -> dict[str, object]:
    cold_ms, cold_million_ms = _cold_ms(kind, scale, BLOCK), _cold_ms(kind, scale, DRAWS)
    ours = _ours_ns(kind, scale)
    theirs = _opendp_ns(kind, scale)
    return {
        "name": f"{kind} {scale:.0e}" if scale >= 10**4 else f"{kind} {scale}",
        "ours_ns": round(ours, 1),
        "opendp_ns": round(theirs),
        "ratio": round(theirs / ours),
        "cold_block_ms": round(cold_ms, 2),
        "million_ms": round(ours * DRAWS / 1e6, 1),
        "cold_million_ms": round(cold_million_ms, 1),
        "target_ms": TARGET_MS,
    }


def _noise(kind: Kind, scale: int) -> Noise:
    return Noise(kind, Fraction(scale) if kind == "laplace" else Fraction(scale) ** 2)


def _cold_ms(kind: Kind, scale: int, draws: int) -> float:
    """Return what the first draws of a scale cost, its tables being built: the best of a few."""
    noise, dice = _noise(kind, scale), BulkRandomSource()
    return min(_cold_s(lambda: noise.sample(draws, dice)) for _ in range(REPEATS)) * 1e3


def _cold_s(draw: Callable[[], object]) -> float:
    from sfumato.dp.sampling import geometric

    for module in (geometric, laplace, gaussian):
        for name in CACHES:
            if hasattr(module, name):
                getattr(module, name).cache_clear()
    return _seconds(draw)


def _ours_ns(kind: Kind, scale: int) -> float:
    noise, dice = _noise(kind, scale), BulkRandomSource()
    return min(_seconds(lambda: noise.sample(DRAWS, dice)) for _ in range(REPEATS)) / DRAWS * 1e9


def _opendp_ns(kind: Kind, scale: int) -> float:
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        mechanism = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(scale))
    else:
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=float(scale))
    zeros = [0] * OPENDP_DRAWS
    return min(_seconds(lambda: mechanism(zeros)) for _ in range(REPEATS)) / OPENDP_DRAWS * 1e9


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def table(rows: list[dict[str, object]]) -> str:
    """Return the rows as a table for people."""
    names = list(rows[0])
    lines = ["  ".join(f"{name:>14}" for name in names)]
    lines += ["  ".join(f"{row[name]!s:>14}" for name in names) for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(run()))
