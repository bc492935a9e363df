"""A process that serves is seldom stopped to look for garbage, and still finds it."""

from __future__ import annotations

import subprocess
import sys

_SEEN = """
import gc, weakref
from sfumato.system.garbage_collection import collect_seldom
class Tied: pass
def tied():
    one = Tied(); one.itself = one
    return weakref.ref(one)
loaded = [[] for _ in range(100_000)]
if {is_seldom}: collect_seldom()
before = gc.get_stats()[2]["collections"]
lost = tied()
kept = [[number] for number in range(200_000)]  # as remembered plans are
print(gc.get_stats()[2]["collections"] > before, lost() is None)
"""


def _seen(*, is_seldom: bool) -> str:
    code = _SEEN.format(is_seldom=is_seldom)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return told.stdout.strip()


def test_what_is_kept_is_not_walked_again_and_again() -> None:
    assert _seen(is_seldom=True) == "False True"


def test_without_it_it_is() -> None:
    assert _seen(is_seldom=False) == "True True"


def test_a_process_that_ends_says_nothing_of_what_was_left_alone() -> None:
    """DuckDB's library counts what of it is left at the end, and says so to whoever stopped it."""
    ends = "import duckdb, sfumato.system.garbage_collection as g; g.collect_seldom(); {}"
    left, looked = (
        subprocess.run(
            [sys.executable, "-c", ends.format(last)], capture_output=True, text=True, check=True
        ).stderr
        for last in ("", "g.collect_normally()")
    )
    assert "leaked" in left  # else there is nothing to be quiet about any more
    assert looked == ""
