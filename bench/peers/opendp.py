"""OpenDP through its Polars interface, as its guide to grouping shows it; cents are integers."""

from __future__ import annotations

from typing import Any

import opendp.prelude as dp
import polars as pl

from bench.peers import script

dp.enable_features("contrib")
_NOTE = (
    "integer cents; a person's first groups are kept, for keep='sample' fails in this version; "
    "a null counts as 0"
)


def _load(file: str) -> pl.DataFrame:
    cents = (pl.col("cost").clip(0, script.LARGEST) * 100).round().cast(pl.Int64)
    return pl.read_parquet(file).with_columns(cents.fill_null(0).alias("cents"))


def _query(rows: pl.DataFrame, key: str, groups: int, delta: float) -> Any:
    context = dp.Context.compositor(
        data=rows.lazy(),
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("who")),
        privacy_loss=dp.loss_of(epsilon=script.EPSILON, delta=delta),
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=[key], max_length=len(rows))],
    )
    bounded = context.query().truncate_per_group(script.MOST_ROWS, by=[key])
    bounded = bounded.truncate_num_groups(groups, by=[key], keep="first")
    sums = pl.col("cents").fill_null(0).dp.sum((0, script.LARGEST * 100))
    return bounded.group_by(key).agg(dp.len(), sums)


def _declared(rows: pl.DataFrame) -> int:
    keys = pl.LazyFrame({"clinic": range(script.CLINICS)}, schema={"clinic": pl.Int32})
    query = _query(rows, "clinic", script.DECLARED_GROUPS, 0.0)
    return len(query.with_keys(keys).release().collect())


def _private(rows: pl.DataFrame) -> int:
    query = _query(rows, "icd", script.PRIVATE_GROUPS, script.DELTA)
    return len(query.release().collect())


def _noise(_rows: object) -> int:
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    mechanism = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(script.SCALE))
    return len(mechanism([0] * script.DRAWS))


if __name__ == "__main__":
    script.answer(
        script.Peer(
            "opendp",
            _load,
            {"declared": _declared, "private": _private, "noise": _noise},
            {"declared": _NOTE, "private": _NOTE, "noise": "exact integers, one vector"},
        )
    )
