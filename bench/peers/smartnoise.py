"""SmartNoise SQL over a pandas frame, as its documentation begins."""

from __future__ import annotations

import pandas as pd
import snsql

from bench.peers import script

_NOTE = (
    "keeps as many rows of a person as the others keep groups; ε is by column, so it is split; "
    "spends δ on every question"
)


def _load(file: str) -> pd.DataFrame:
    return pd.read_parquet(file)


def _metadata(rows: pd.DataFrame, max_ids: int, *, is_private: bool) -> dict[str, object]:
    table = {
        "max_ids": max_ids,
        "censor_dims": is_private,
        "rows": len(rows),
        "who": {"type": "string", "private_id": True},
        "clinic": {"type": "int"},
        "icd": {"type": "string"},
        "cost": {"type": "float", "lower": 0.0, "upper": float(script.LARGEST)},
    }
    return {"": {"": {"visits": table}}}


def _declared(rows: pd.DataFrame) -> int:
    metadata = _metadata(rows, script.DECLARED_GROUPS, is_private=False)
    return _keys(rows, metadata, "clinic", script.EPSILON / 2)


def _private(rows: pd.DataFrame) -> int:
    metadata = _metadata(rows, script.PRIVATE_GROUPS, is_private=True)
    return _keys(rows, metadata, "icd", script.EPSILON / 3)


def _keys(rows: pd.DataFrame, metadata: dict[str, object], key: str, epsilon: float) -> int:
    privacy = snsql.Privacy(epsilon=epsilon, delta=script.DELTA)
    reader = snsql.from_df(rows, privacy=privacy, metadata=metadata)
    query = f"SELECT {key}, COUNT(*) AS n, SUM(cost) AS paid FROM visits GROUP BY {key}"
    return len(reader.execute(query)) - 1  # its first row names the columns


if __name__ == "__main__":
    script.answer(
        script.Peer(
            "smartnoise-sql",
            _load,
            {"declared": _declared, "private": _private},
            {"declared": _NOTE, "private": _NOTE},
        )
    )
