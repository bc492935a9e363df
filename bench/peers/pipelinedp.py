"""PipelineDP on its local backend; its noise is that of PyDP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pipeline_dp
import pyarrow.parquet as pq
from pydp.algorithms.numerical_mechanisms import LaplaceMechanism

from bench.peers import script

Row = tuple[Any, ...]  # who, clinic, icd, cost, as Parquet has them


def _load(file: str) -> list[Row]:
    table = pq.read_table(file, columns=["who", "clinic", "icd", "cost"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _declared(rows: list[Row]) -> int:
    return _keys(rows, 1, script.DECLARED_GROUPS, 0.0, list(range(script.CLINICS)))


def _private(rows: list[Row]) -> int:
    return _keys(rows, 2, script.PRIVATE_GROUPS, script.DELTA, None)


def _keys(
    rows: list[Row], place: int, groups: int, delta: float, keys: Sequence[int] | None
) -> int:
    accountant = pipeline_dp.NaiveBudgetAccountant(script.EPSILON, delta)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.SUM],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=groups,
        max_contributions_per_partition=script.MOST_ROWS,
        min_value=0,
        max_value=script.LARGEST,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[place],
        value_extractor=lambda row: row[3] or 0.0,
    )
    answer = engine.aggregate(rows, params, extractors, public_partitions=keys)
    accountant.compute_budgets()
    return len(list(answer))


def _noise(_rows: object) -> int:
    mechanism = LaplaceMechanism(1 / script.SCALE, 1)
    return len([mechanism.add_noise(0) for _ in range(script.DRAWS)])


if __name__ == "__main__":
    script.answer(
        script.Peer(
            "pipeline-dp",
            _load,
            {"declared": _declared, "private": _private, "noise": _noise},
            {
                "declared": "local backend, one process; a null counts as 0",
                "private": "local backend, one process; a null counts as 0",
                "noise": "one call a value",
            },
        )
    )
