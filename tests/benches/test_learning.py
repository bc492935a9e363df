"""What the benches of learning count: all processes of a site, and rows that nobody sees twice."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from bench import digits, learning
from sfumato.app.site_demo import LocalSite

_TWO = """
import subprocess, sys
ways = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
below = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], **ways)
below.stdout.readline()
print(flush=True)
input()
below.communicate(b"\\n")
"""


def test_a_site_weighs_what_all_of_its_processes_do() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _TWO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        site = LocalSite("east", "", process, "")
        found = learning._processes([site])
        assert found[0] == process.pid
        assert len(found) == 2
        assert learning._pss_mb([site]) > 1
        assert learning._cpu_s([site]) > 0
        process.communicate("\n")


def test_nobody_is_looked_at_who_was_learnt_from() -> None:
    inks = np.arange(200.0)[:, None]
    for seed in range(3):
        parts = digits.split(inks, inks[:, 0], seed)
        seen = [*parts.rows[:, 0].tolist(), *parts.test_rows[:, 0].tolist()]
        assert sorted(seen) == list(range(200))
        assert len(parts.rows) == 150


def test_sites_without_noise_learn_what_one_with_all_rows_does() -> None:
    drawn = np.random.default_rng(1)
    shown = drawn.integers(0, 10, 200).astype(np.float64)
    lines = np.arange(64) // 6 == shown[:, None]  # of each digit another
    inks = lines / 2 + drawn.random((200, 64)) / 4
    parts = digits.split(inks, shown, 1)
    plan = digits.plan_for(parts, 3, digits.WIDE, 4)
    apart = digits.learnt(parts, plan, digits.SITES, 1, noisy=False)
    assert abs(apart - digits.pooled(parts, 1)) <= 0.1
    assert apart > 0.8
