"""Registry of aggregate functions, with one line for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import AggregateKind
from sfumato.query.aggregates.count import COUNT, COUNT_DISTINCT, COUNT_PEOPLE, COUNT_VALUES
from sfumato.query.aggregates.covariance import (
    CORRELATION,
    COVARIANCE,
    INTERCEPT,
    POPULATION_COVARIANCE,
    SLOPE,
)
from sfumato.query.aggregates.mean import MEAN
from sfumato.query.aggregates.order_statistics import MAXIMUM, MINIMUM, QUANTILE, TOP
from sfumato.query.aggregates.running_count import RUNNING_COUNT
from sfumato.query.aggregates.sum import SUM
from sfumato.query.aggregates.threshold_search import BOUNDS, FIRST_ABOVE
from sfumato.query.aggregates.variance import (
    DEVIATION,
    POPULATION_DEVIATION,
    POPULATION_VARIANCE,
    VARIANCE,
)
from sfumato.query.model import Verb as VerbName

VERBS: Final[Mapping[VerbName, AggregateKind]] = {
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


def aggregate_of(name: VerbName) -> AggregateKind:
    """Return the aggregate function of that name, or refuse one that is not implemented."""
    verb = VERBS.get(name)
    if verb is None:
        raise Refused(
            "not-in-language",
            f"{name} is not supported yet.",
            "Ask for COUNT, SUM, AVG, VAR_SAMP, STDDEV_SAMP, CORR or REGR_SLOPE.",
        )
    return verb
