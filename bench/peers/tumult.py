"""Tumult Analytics on Spark in this machine, as its tutorials on privacy identifiers show it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from bench.peers import script

os.environ["PYSPARK_PYTHON"] = sys.executable
if shutil.which("java") is None:
    raise SystemExit("it needs Java, which is not here")

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    ApproxDPBudget,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    PrivacyBudget,
    PureDPBudget,
    QueryBuilder,
    Session,
)
from tmlt.core.measurements.noise_mechanisms import AddGeometricNoise

_NOTE = "count and sum are two queries; Spark in one machine; a null counts as 0"


def _load(file: str) -> Any:  # a Spark frame
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    rows = builder.getOrCreate().read.parquet(file).fillna(0.0, subset=["cost"]).cache()
    rows.count()
    return rows


def _bounded(key: str, groups: int) -> QueryBuilder:
    builder = QueryBuilder("visits").enforce(MaxGroupsPerID(key, groups))
    return builder.enforce(MaxRowsPerGroupPerID(key, script.MOST_ROWS))


def _declared(rows: Any) -> int:  # a Spark frame
    budget = PureDPBudget(script.EPSILON)
    session = Session.from_dataframe(budget, "visits", rows, AddRowsWithID("who"))
    keys = KeySet.from_dict({"clinic": list(range(script.CLINICS))})
    half = PureDPBudget(script.EPSILON / 2)
    return _keys(session, _bounded("clinic", script.DECLARED_GROUPS).groupby(keys), half)


def _private(rows: Any) -> int:  # a Spark frame
    budget = ApproxDPBudget(script.EPSILON, script.DELTA)
    session = Session.from_dataframe(budget, "visits", rows, AddRowsWithID("who"))
    bounded, third = _bounded("icd", script.PRIVATE_GROUPS), script.EPSILON / 3
    chosen = session.evaluate(bounded.get_groups(["icd"]), ApproxDPBudget(third, script.DELTA))
    grouped = bounded.groupby(KeySet.from_dataframe(chosen.cache()))
    return _keys(session, grouped, ApproxDPBudget(third, 0))


def _keys(session: Session, grouped: Any, budget: PrivacyBudget) -> int:
    counts = session.evaluate(grouped.count(), budget).toPandas()
    session.evaluate(grouped.sum("cost", 0, script.LARGEST), budget).toPandas()
    return len(counts)


def _noise(_rows: object) -> int:
    mechanism = AddGeometricNoise(alpha=script.SCALE)
    return len([mechanism(0) for _ in range(script.DRAWS)])


if __name__ == "__main__":
    script.answer(
        script.Peer(
            "tmlt-analytics",
            _load,
            {"declared": _declared, "private": _private, "noise": _noise},
            {"declared": _NOTE, "private": _NOTE, "noise": "exact integers, one call a value"},
        )
    )
