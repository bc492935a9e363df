"""Registry of aggregate functions, with one entry for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Registered:
    """An aggregate function: its implementation, its SQL name, and how its columns are named."""

    kind: AggregateKind
    sql: str  # its name in SQL
    column: str  # the name of its column in an answer; {} stands for the columns it is of


# The key is stored with every query, so it never changes.
AGGREGATES: Final[Mapping[str, Registered]] = {
    "count": Registered(COUNT, "COUNT", "count"),
    "count_values": Registered(COUNT_VALUES, "COUNT", "count_{}"),
    "count_people": Registered(COUNT_PEOPLE, "COUNT", "people"),
    "count_distinct": Registered(COUNT_DISTINCT, "COUNT", "distinct_{}"),
    "sum": Registered(SUM, "SUM", "sum_{}"),
    "mean": Registered(MEAN, "AVG", "avg_{}"),
    "variance": Registered(VARIANCE, "VAR_SAMP", "var_{}"),
    "deviation": Registered(DEVIATION, "STDDEV", "stddev_{}"),
    "population_variance": Registered(POPULATION_VARIANCE, "VAR_POP", "var_pop_{}"),
    "population_deviation": Registered(POPULATION_DEVIATION, "STDDEV_POP", "stddev_pop_{}"),
    "covariance": Registered(COVARIANCE, "COVAR_SAMP", "covar_{}"),
    "population_covariance": Registered(POPULATION_COVARIANCE, "COVAR_POP", "covar_pop_{}"),
    "correlation": Registered(CORRELATION, "CORR", "corr_{}"),
    "slope": Registered(SLOPE, "REGR_SLOPE", "slope_{}"),
    "intercept": Registered(INTERCEPT, "REGR_INTERCEPT", "intercept_{}"),
    "quantile": Registered(QUANTILE, "PERCENTILE_CONT", "quantile_{}"),
    "minimum": Registered(MINIMUM, "MIN", "min_{}"),
    "maximum": Registered(MAXIMUM, "MAX", "max_{}"),
    "top": Registered(TOP, "APPROX_TOP_K", "top_{}"),
    "bounds": Registered(BOUNDS, "BOUNDS", "bounds_{}"),
    "first_above": Registered(FIRST_ABOVE, "FIRST_ABOVE", "first_above_{}"),
    "running_count": Registered(RUNNING_COUNT, "RUNNING_COUNT", "running_count"),
}


def aggregate_of(name: str) -> AggregateKind:
    """Return the aggregate function of that name, or refuse one that is not implemented."""
    found = AGGREGATES.get(name)
    if found is None:
        raise Refused(
            "not-in-language",
            f"The aggregate {name} is not supported.",
            "Use COUNT, SUM, AVG, VAR_SAMP, STDDEV_SAMP, CORR or REGR_SLOPE instead.",
        )
    return found.kind
