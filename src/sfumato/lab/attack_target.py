"""Define what an attack queries: a function, or a data set of a local or remote vault."""

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
    """The interface of an attack's target: it answers an SQL question with a number, or refuses."""

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the answer to an SQL question as a number, or raise the refusal."""
        ...


@dataclass(frozen=True)
class Called:
    """An attack's target that answers questions by calling a function."""

    function: Callable[[str, Number], float]

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the function's answer to an SQL question."""
        return self.function(sql, epsilon)


@dataclass(frozen=True)
class Opened:
    """An attack's target: a data set of an open vault, or of a vault behind `sfumato.connect`."""

    data_set: DataSet
    is_fresh: bool = False  # True: each question pays for new noise

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the data set's answer to an SQL question; refuse all but a single number."""
        value = self.data_set.ask(sql, epsilon=epsilon, fresh=self.is_fresh).value
        if isinstance(value, int | float):
            return float(value)
        raise Refused(
            "not-in-language",
            "The answer to the attacked question is not a single number.",
            "Ask for a count or a sum.",
        )


@dataclass(frozen=True)
class Forgetful:
    """BROKEN: a target with correct noise on each answer, but no budget and no answer cache."""

    exact: Callable[[str], int]
    dice: np.random.Generator

    def ask(self, sql: str, epsilon: Number) -> float:
        """Return the exact count plus new noise, however often the question is asked."""
        count = np.array([self.exact(sql)], dtype=np.int64)
        seen = private_sums(count, sensitivity=1, epsilon=float(epsilon), dice=self.dice)
        return float(seen[0])
