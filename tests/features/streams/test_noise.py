"""The noise of streams as it leaves the door, block by block; rows come from an engine in Python.

What is judged is the door: its draws, its adding up and what it writes into the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from sfumato.features.streams.release import (
    StreamDoor,
    close_periods,
    closed_of,
    open_stream,
    stream_answer,
)
from sfumato.features.streams.store import FileStreams
from sfumato.features.streams.stream_plan import Stream
from sfumato.query.expression import DateTrunc, Ref
from sfumato.query.model import Aggregate, Output, Query
from sfumato.release.ledger_guard import Ledger
from sfumato.release.noise_pool import NoisePool
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.key_files import ReceiptKey
from sfumato.storage.sqlite_ledger import create_ledger
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Listing
from support.engine_rows import card_of
from support.ledger_stores import StoppedClock
from support.noise_judge import accusations
from support.stream_oracle import CountedEngine, Day, taken_by_hand

DRAWS = 8000
ALONG = DateTrunc("day", Ref("day"))
OUTPUTS = (Output("day", ALONG), Output("n", Aggregate("running_count", (ALONG,))))


@pytest.fixture(scope="module")
def card() -> Card:
    budget = {"epsilon": 1000}
    return card_of("who", {"day": {"type": "date"}}, budget=budget, version="1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder in memory, if there is one: thousands of periods are synced one by one."""
    if not Path("/dev/shm").is_dir():  # noqa: S108  # a test's own folder in it
        yield tmp_path_factory.mktemp("noise")
        return
    with TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def door(folder: Path) -> Iterator[StreamDoor]:
    store = create_ledger(folder / "ledger.sqlite", StoppedClock(), SystemRandomSource())
    ledger = Ledger(store, FileAnchor(folder / "anchor"), ReceiptKey(bytes(range(32))))
    ledger.begin("vault-created", {})
    kept, pool = FileStreams(folder / "streams"), NoisePool(SystemRandomSource())
    yield StreamDoor(ledger, CountedEngine(lambda _: {}), pool, kept)
    store.close()


def stream(name: str, periods: int, rows: int, epsilon: Fraction) -> Stream:
    question = Query("some", OUTPUTS, None, (ALONG,))
    return Stream("some", name, question, "2000-01-01", periods, rows, epsilon)


def closing(
    door: StreamDoor, card: Card, asked: Stream, day: Callable[[int], Day]
) -> tuple[StreamDoor, CountedEngine]:
    """Open the stream; return the door that closes it, and its engine."""
    engine = CountedEngine(day)
    open_stream(door.ledger, card, asked, "owner")
    return StreamDoor(door.ledger, engine, door.pool, door.kept), engine


def noise_of(door: StreamDoor, card: Card, asked: Stream, day: Callable[[int], Day]) -> list[int]:
    """Return the noise in every block of the whole stream."""
    doors, engine = closing(door, card, asked, day)
    found = open_stream(door.ledger, card, asked, "owner")
    close_periods(doors, Listing(card, "nowhere"), found, asked.periods)
    released = [one.block for one in closed_of(door.ledger, found)]
    return [noisy - exact for noisy, exact in zip(released, engine.blocks, strict=True)]


def test_every_block_has_laplace_noise_of_scale_c_levels_by_epsilon(
    door: StreamDoor, card: Card
) -> None:
    """8,000 draws tell 0.85 and 1.15 times the scale from it, and one draw used twice."""
    asked = stream("judged", DRAWS, 3, Fraction("0.5"))
    assert asked.running.tree.levels == 3
    scale = Fraction(3 * 3) / Fraction("0.5")
    dice = Random(8)
    noise = noise_of(door, card, asked, lambda _: {f"p{dice.randrange(9)}": 1})
    found = np.array(noise, dtype=np.int64)
    assert accusations(found, "laplace", scale) == []
    for wrong in (Fraction(85, 100), Fraction(115, 100)):  # 0.9 and 1.1 not always
        assert "width" in accusations(found, "laplace", wrong * scale)
    assert "repeats" in accusations(np.repeat(found[: DRAWS // 2], 2), "laplace", scale)


def test_what_is_shown_is_the_sum_of_the_noisy_blocks(door: StreamDoor, card: Card) -> None:
    asked = stream("shown", 40, 1, Fraction(1))
    noise = noise_of(door, card, asked, lambda end: {f"p{end}": 1})
    found = open_stream(door.ledger, card, asked, "owner")
    shown = stream_answer(door.ledger, card, found)
    starts, prefix = asked.running.tree.before().tolist(), [0] * 41
    for end in range(1, 41):
        prefix[end] = prefix[starts[end - 1]] + noise[end - 1]
    assert [row[1] - end for end, row in enumerate(shown["rows"], 1)] == prefix[1:]  # type: ignore[arg-type,var-annotated]


def test_somebody_who_answers_to_each_release_is_hidden_by_what_the_price_promised(
    door: StreamDoor, card: Card
) -> None:
    """Ann comes on the next day if the last block was above what was there, as long as she may.

    Along what the door released, the likelihood of the world without her is followed. It is within
    exp(epsilon) of that of the world with her, and averages to one, as it does only if the blocks
    have just the promised noise, each its own, whatever the rows answer to.
    """
    epsilon, runs = Fraction(1), 250
    ratios = []
    for run in range(runs):
        asked = stream(f"adaptive{run}", 4, 2, epsilon)
        ratios.append(_ratio(door, card, asked))
    bound = math.exp(epsilon) + 1e-9
    assert all(1 / bound <= ratio <= bound for ratio in ratios)
    assert max(ratios) > 1.2
    spread = float(np.std(ratios)) / math.sqrt(runs)
    assert abs(float(np.mean(ratios)) - 1) < 5 * spread


def _ratio(door: StreamDoor, card: Card, asked: Stream) -> float:
    """Return how much likelier what was released is without ann than with her."""
    released: list[int] = []

    def day(end: int) -> Day:
        comes = end == 1 or released[-1] > 2
        return {"bob": 1, "cid": end % 2, **({"ann": 1 + end % 2} if comes else {})}

    doors, engine = closing(door, card, asked, day)
    found, days = open_stream(door.ledger, card, asked, "owner"), []
    for end in range(1, asked.periods + 1):
        days.append(day(end))
        close_periods(doors, Listing(card, "nowhere"), found, end)
        released[:] = [one.block for one in closed_of(door.ledger, found)]
    rest = [{who: n for who, n in one.items() if who != "ann"} for one in days]
    counts = [sum(one.values()) for one in taken_by_hand(rest, asked.rows)]
    without = asked.running.blocks(np.array(counts, dtype=np.int64)).tolist()
    scale = float(asked.running.noise.parameter)
    loss = sum(
        (abs(o - exact) - abs(o - other)) / scale
        for o, exact, other in zip(released, engine.blocks, without, strict=True)
    )
    return math.exp(loss)
