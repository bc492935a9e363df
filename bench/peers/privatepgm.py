"""MST made with private-pgm (mbi 2.0), by its authors' recipe; run in an environment of its own.

Its input is a .npz of codes and sizes; it prints the seconds, and writes the rows that it drew.
The recipe: a third of rho on each column, a third on choosing pairs by the exponential mechanism, a
third on the pairs; categories below three stds of noise are counted together. None of it is ours.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import sys
import time
import warnings
from itertools import combinations

import numpy as np

warnings.simplefilter("ignore")
import mbi  # type: ignore[import-not-found,unused-ignore]  # noqa: E402  # a peer's own environment
from mbi import estimation  # type: ignore[import-not-found,unused-ignore]  # noqa: E402


def main(source: str, target: str, rho: float, seed: int) -> None:
    """Make one twin."""
    loaded = np.load(source)
    codes, sizes = loaded["codes"], loaded["sizes"].tolist()
    dice = np.random.default_rng(seed)
    begun = time.perf_counter()
    names = [f"c{i}" for i in range(len(sizes))]
    sigma = (len(sizes) / (2 * rho / 3)) ** 0.5
    alone = [
        np.bincount(codes[:, i], minlength=k) + dice.normal(0, sigma, k)
        for i, k in enumerate(sizes)
    ]
    groups = [merged(counts, sigma) for counts in alone]
    small = [int(g.max()) + 1 for g in groups]
    grouped = np.stack([groups[i][codes[:, i]] for i in range(len(sizes))], axis=1)
    domain = mbi.Domain(names, small)
    found = []
    for i, counts in enumerate(alone):
        sums = np.bincount(groups[i], weights=counts, minlength=small[i])
        wide = sigma * np.sqrt(np.bincount(groups[i]).max())
        found.append(mbi.LinearMeasurement(sums, (names[i],), stddev=wide))
    model = estimated(domain, found)
    chosen = pairs_of(grouped, small, model, names, rho / 3, dice)
    width = (len(chosen) / (2 * rho / 3)) ** 0.5
    for i, j in chosen:
        exact = np.bincount(grouped[:, i] * small[j] + grouped[:, j], minlength=small[i] * small[j])
        noisy = exact + dice.normal(0, width, exact.size)
        found.append(mbi.LinearMeasurement(noisy, (names[i], names[j]), stddev=width))
    model = estimated(domain, found)
    drawn = model.synthetic_data(len(codes))
    made = np.stack([np.asarray(drawn.to_dict()[n]) for n in names], axis=1)
    for i, counts in enumerate(alone):
        made[:, i] = apart(made[:, i], groups[i], counts, dice)
    print(time.perf_counter() - begun)
    np.save(target, made)


def merged(counts, sigma):
    """Return groups in which the drowned categories are together."""
    drowned = counts < 3 * sigma
    if drowned.sum() < 2:
        return np.arange(len(counts))
    return np.where(drowned, (~drowned).sum(), np.cumsum(~drowned) - 1)


def apart(codes, groups, counts, dice):
    """Return categories for groups, by their own noisy counts."""
    made = np.empty(len(codes), dtype=int)
    for group in range(int(groups.max()) + 1):
        members, rows = np.flatnonzero(groups == group), np.flatnonzero(codes == group)
        weights = np.maximum(counts[members], 0) + 1e-3
        made[rows] = dice.choice(members, len(rows), p=weights / weights.sum())
    return made


def estimated(domain, found):
    """Return the model that private-pgm fits."""
    return estimation.MirrorDescent().estimate(domain, found, iters=1000)


def pairs_of(codes, sizes, model, names, rho, dice):  # noqa: PLR0917  # a script
    """Return a spanning tree, chosen by the exponential mechanism on distances."""
    pairs = list(combinations(range(len(sizes)), 2))
    far = {}
    for i, j in pairs:
        exact = np.bincount(codes[:, i] * sizes[j] + codes[:, j], minlength=sizes[i] * sizes[j])
        far[i, j] = np.abs(
            exact - np.asarray(model.project((names[i], names[j])).datavector())
        ).sum()
    epsilon = (8 * rho / (len(sizes) - 1)) ** 0.5
    group, chosen = list(range(len(sizes))), []
    while len(set(group)) > 1:
        left = [pair for pair in pairs if group[pair[0]] != group[pair[1]]]
        scores = np.array([far[pair] for pair in left]) * epsilon / 2
        chances = np.exp(scores - scores.max())
        i, j = left[dice.choice(len(left), p=chances / chances.sum())]
        group = [group[i] if held == group[j] else held for held in group]
        chosen.append((i, j))
    return chosen


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
