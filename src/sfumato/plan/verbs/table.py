"""The table of verbs: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.core.question import Verb as VerbName
from sfumato.plan.verbs.count import COUNT, COUNT_PEOPLE, COUNT_VALUES
from sfumato.plan.verbs.mean import MEAN
from sfumato.plan.verbs.sum import SUM
from sfumato.plan.verbs.verb import Verb

VERBS: Final[Mapping[VerbName, Verb]] = {
    "count": COUNT,
    "count_values": COUNT_VALUES,
    "count_people": COUNT_PEOPLE,
    "sum": SUM,
    "mean": MEAN,
}
