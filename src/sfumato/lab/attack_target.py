"""What an attack can ask: a function, a vault's data set, here or over HTTP; all by one verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfumato.client.ask_terms import Number
from sfumato.client.vault import DataSet
from sfumato.dp.refusal import Refused
from sfumato.lab.platform_noise import private_sums


class Target(Protocol):
    """Whatever answers a question in SQL with one number; it may refuse."""

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the answer, or raise what was refused."""
        ...


@dataclass(frozen=True)
class Called:
    """A function as a target."""

    function: Callable[[str, Number], float]

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return what the function returns."""
        return self.function(sql, epsilon)


@dataclass(frozen=True)
class Opened:
    """A data set of an open vault, or of `sfumato.connect`, as a target."""

    data_set: DataSet
    is_fresh: bool = False  # whether new noise is asked for each time, which is paid for

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the one number of the answer."""
        value = self.data_set.ask(sql, epsilon=epsilon, fresh=self.is_fresh).value
        if isinstance(value, int | float):
            return float(value)
        raise Refused("not-in-language", "The answer is no number.", "Ask for a count or a sum.")


@dataclass(frozen=True)
class Forgetful:
    """BROKEN. Good noise for every question, and no memory: neither a budget nor old answers."""

    exact: Callable[[str], int]
    dice: np.random.Generator

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the exact count with new noise."""
        count = np.array([self.exact(sql)], dtype=np.int64)
        seen = private_sums(count, sensitivity=1, epsilon=float(epsilon), dice=self.dice)
        return float(seen[0])
