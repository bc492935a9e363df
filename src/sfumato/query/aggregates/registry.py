"""The table of verbs: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.core.question import Verb as VerbName
from sfumato.core.refusal import Refused
from sfumato.plan.verbs.choice import MAXIMUM, MINIMUM, QUANTILE, TOP
from sfumato.plan.verbs.count import COUNT, COUNT_DISTINCT, COUNT_PEOPLE, COUNT_VALUES
from sfumato.plan.verbs.mean import MEAN
from sfumato.plan.verbs.pairs import (
    CORRELATION,
    COVARIANCE,
    INTERCEPT,
    POPULATION_COVARIANCE,
    SLOPE,
)
from sfumato.plan.verbs.running import RUNNING_COUNT
from sfumato.plan.verbs.search import BOUNDS, FIRST_ABOVE
from sfumato.plan.verbs.sum import SUM
from sfumato.plan.verbs.variance import (
    DEVIATION,
    POPULATION_DEVIATION,
    POPULATION_VARIANCE,
    VARIANCE,
)
from sfumato.plan.verbs.verb import Verb

VERBS: Final[Mapping[VerbName, Verb]] = {
    "count": COUNT,
    "count_values": COUNT_VALUES,
    "count_people": COUNT_PEOPLE,
    "count_distinct": COUNT_DISTINCT,
    "sum": SUM,
    "mean": MEAN,
    "variance": VARIANCE,
    "deviation": DEVIATION,
    "population_variance": POPULATION_VARIANCE,
    "population_deviation": POPULATION_DEVIATION,
    "covariance": COVARIANCE,
    "population_covariance": POPULATION_COVARIANCE,
    "correlation": CORRELATION,
    "slope": SLOPE,
    "intercept": INTERCEPT,
    "quantile": QUANTILE,
    "minimum": MINIMUM,
    "maximum": MAXIMUM,
    "top": TOP,
    "bounds": BOUNDS,
    "first_above": FIRST_ABOVE,
    "running_count": RUNNING_COUNT,
}


def verb_of(name: VerbName) -> Verb:
    """Return the verb, or refuse one that is not answered yet."""
    verb = VERBS.get(name)
    if verb is None:
        raise Refused(
            "not-in-language",
            f"{name} is not answered yet.",
            "Ask for COUNT, SUM, AVG, VAR_SAMP, STDDEV_SAMP, CORR or REGR_SLOPE.",
        )
    return verb
