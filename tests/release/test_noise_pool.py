"""The pool hands out every draw once, in order, to one taker."""

from __future__ import annotations

import threading
import time
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.mechanisms.noise import Noise
from sfumato.release.noise_pool import BLOCK, NoisePool
from support.ledger_stores import exit_code, start_child
from support.noise_judge import accusations
from support.seeded_dice import SeededDice

NOISE = Noise("laplace", Fraction(10**12))  # so wide that no two draws agree by chance


@pytest.mark.parametrize("count", [1, 7, 1000, BLOCK, BLOCK + 1])
def test_no_draw_is_handed_out_twice(count: int) -> None:
    pool = NoisePool(SeededDice(1))
    times = 3 * BLOCK // count + 2
    drawn = np.concatenate([pool.take(NOISE, count) for _ in range(times)])
    assert len(np.unique(drawn)) == len(drawn) == times * count


def test_what_is_taken_is_the_takers_own() -> None:
    pool = NoisePool(SeededDice(1))
    mine = pool.take(NOISE, 5)
    mine[:] = 0
    assert 0 not in pool.take(NOISE, 100)


def test_noise_taken_one_by_one_is_what_was_promised() -> None:
    pool, noise = NoisePool(SeededDice(2)), Noise("laplace", Fraction(10))
    drawn = np.array([pool.take(noise, 1)[0] for _ in range(20_000)])
    assert accusations(drawn, "laplace", Fraction(10)) == []


def test_a_block_is_filled_before_it_is_used_up() -> None:
    """Off the request path: no take after the first waits for a draw."""
    drawing: list[str] = []

    class ToldDice(SeededDice):
        def draw(self, count: int) -> bytes:
            drawing.append(threading.current_thread().name)
            return super().draw(count)

    pool = NoisePool(ToldDice(4))
    pool.take(NOISE, 1)
    here = threading.current_thread().name
    at_first = drawing.count(here)
    for _ in range(3 * BLOCK // 64):
        pool.take(NOISE, 64)
        while pool._low:  # give the filling thread its time
            time.sleep(0.001)
    assert drawing.count(here) == at_first
    assert drawing.count("noise") > 0


def test_a_forked_child_fills_its_own_pool() -> None:
    pool = NoisePool(SeededDice(5))
    pool.take(NOISE, BLOCK - 1)  # the parent's thread runs

    def child() -> None:
        for _ in range(4 * BLOCK // 64):
            pool.take(NOISE, 64)

    assert exit_code(start_child(child)) == 0


def test_threads_share_no_draw() -> None:
    pool = NoisePool(SeededDice(3))
    taken: list[int] = []

    def take() -> None:
        for _ in range(2000):
            taken.append(int(pool.take(NOISE, 1)[0]))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(taken)
