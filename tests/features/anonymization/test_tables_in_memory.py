"""Anonymity of a table in memory: the same as of the file that it would be written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.features.anonymization import Goal, Recoding, TableFile
from sfumato.lab.sample_data import MEDICAL, medical_rows

QUASI, SENSITIVE = ["age", "zip"], ["has_rare_disease"]


@pytest.fixture(scope="module")
def of_the_file() -> Any:  # JSON
    return sfumato.anonymity().check(TableFile(str(MEDICAL)), QUASI, SENSITIVE)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(medical_rows()),
        pl.DataFrame(medical_rows()),
        medical_rows(),
        pd.DataFrame(medical_rows()).to_records(index=False),
        MEDICAL,
        str(MEDICAL),
    ],
    ids=["pandas", "polars", "rows", "records", "path", "text"],
)
def test_a_frame_is_as_anonymous_as_its_file(of_the_file: Any, table: Any) -> None:
    assert sfumato.anonymity().check(table, QUASI, SENSITIVE) == of_the_file


CELL = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["a", "b ", "NA", "1", "01"]))


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(CELL, st.integers(0, 2), st.booleans()), min_size=1, max_size=12))
def test_whatever_a_frame_holds_its_file_measures_the_same(
    tmp_path: Path, cells: list[tuple[object, int, bool]]
) -> None:
    frame = pd.DataFrame(cells, columns=["what", "n", "sick"], dtype=object)
    place = tmp_path / "frame.csv"
    frame.assign(sick=[str(one).lower() for one in frame["sick"]]).to_csv(place, index=False)
    service = sfumato.anonymity()
    assert service.check(frame, ["what", "n"], ["sick"]) == service.check(
        place, ["what", "n"], ["sick"]
    )


def test_the_columns_of_an_array_are_named_by_their_place() -> None:
    array = np.array([[1, 5], [1, 6], [2, 5], [2, 5]])
    service = sfumato.anonymity()
    assert service.check(array)["k"] == 1
    assert service.check(array, [0])["k"] == service.check(array, ["0"])["k"] == 2
    with pytest.raises(Refused):
        service.check(array, [2])


def test_a_frame_is_recoded_like_a_file() -> None:
    frame = pd.DataFrame(medical_rows())[["age", "zip"]]
    shape: Any  # JSON
    lines, shape = sfumato.anonymity().reach(frame, Recoding(("age", "zip"), Goal(k=5)))
    assert lines[0] == ["age", "zip"]
    assert shape["checked"]["k"] >= 5
    made, _ = sfumato.anonymity().reach(
        TableFile(str(MEDICAL)), Recoding(("age", "zip"), Goal(k=5))
    )
    assert made == lines


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(Refused):
        sfumato.anonymity().check(5)
