"""Requests are read as they are declared: exactly, and as earlier versions read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.features.data_sets.schema import AddDataSet
from sfumato.features.federated.schema import JoinSum
from sfumato.features.jobs.service import ADD, Job
from sfumato.features.pipelines.schema import SetPipelineRule
from sfumato.features.policy.schema import ChangeCap
from sfumato.features.queries.schema import Ask
from sfumato.features.synthetic.schema import DpTwinOrder
from sfumato.query.model import query_json
from sfumato.query.sql.select import read_sql
from sfumato.wire.json_text import json_text
from sfumato.wire.verb import read_request, stored_body
from support.small_vaults import PATIENTS_CARD, open_with, write_patients

SQL = "SELECT COUNT(*) AS n FROM patients"


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault of one data set."""
    folder = tmp_path_factory.mktemp("verbs")
    rows = write_patients(folder / "rows.csv")
    with open_with(folder, "patients", rows, PATIENTS_CARD) as opened:
        yield opened


def refusal(request: type[Any], **body: object) -> str:
    with pytest.raises(Refused) as refused:
        read_request(request, body)
    return f"{refused.value.code}: {refused.value.cause}"


def test_numbers_are_read_exactly_also_in_maps() -> None:
    asked = read_request(
        Ask, {"data_set": "d", "sql": SQL, "epsilon": "1/3", "error": {"n": "2/7"}}
    )
    assert (asked.epsilon, asked.error) == (Fraction(1, 3), {"n": Fraction(2, 7)})


def test_what_is_malformed_is_named_in_plain_words() -> None:
    assert "'top_upp' is not known" in refusal(Ask, data_set="d", sql=SQL, top_upp="x")
    assert "data_set is missing" in refusal(Ask, sql=SQL)
    assert "people has to be a whole number" in refusal(Ask, data_set="d", sql=SQL, people="x")
    assert "either sql or question" in refusal(Ask, data_set="d")
    sum_: dict[str, Any] = {"data_set": "d", "federation": "f", "sql": SQL, "message": ""}
    assert "'x' is not known" in refusal(JoinSum, **sum_, told={"x": 1})
    assert "bad-request" in refusal(JoinSum, **sum_, told={"loss": -1})
    assert "bad-request" in refusal(JoinSum, **sum_, weights="?")


def test_null_is_a_field_that_was_left_out() -> None:
    cap = read_request(
        ChangeCap, {"data_set": "d", "of": "people", "epsilon": 1, "name": None, "why": None}
    )
    assert (cap.name, cap.why) == ("", "")
    twin = read_request(DpTwinOrder, {"data_set": "d", "epsilon": 1, "method": None, "op": "x"})
    assert (twin.method, twin.op) == ("mst", "x")


def test_a_rule_is_handed_on_with_its_nulls_so_that_its_own_reader_refuses_them() -> None:
    """No texts would admit every text; null is no such list."""
    rule: dict[str, object] = {"data_set": "d", "columns": [], "outputs": [], "texts": None}
    assert read_request(SetPipelineRule, rule).as_body("data_set") == {
        "columns": [], "outputs": [], "texts": None,
    }  # fmt: skip


def test_a_stored_body_of_an_earlier_version_is_the_same_request() -> None:
    now = read_request(Ask, {"data_set": "d", "sql": SQL, "epsilon": "1/3"})
    then = {"data_set": "d", "sql": SQL, "epsilon": "2/6", "fresh": False, "error": None}
    assert stored_body(Ask, json_text(then)) == json_text(now.as_body())
    added = {"card": {}, "name": "d", "upload": "u", "tables": {}, "note": "from elsewhere"}
    assert json.loads(stored_body(AddDataSet, json_text(added))) == {
        "card": {}, "name": "d", "upload": "u",
    }  # fmt: skip
    assert stored_body(Ask, "no request") == "no request"


def test_a_job_that_cannot_be_read_stops_no_other(vault: OpenVault) -> None:
    adding = vault.house.desk.adding
    bad = Job("0", "owner", "", ADD, "d", "0", '{"name": 1}', "2026-01-01T00:00:00+00:00")
    assert adding.is_workable(bad)


def test_what_json_cannot_express_is_refused_and_not_a_crash(vault: OpenVault) -> None:
    for value in (float("nan"), {1, 2}, b"x"):
        with pytest.raises(Refused) as refused:
            vault.call("ask", {"data_set": "patients", "sql": SQL, "epsilon": value})
        assert refused.value.code == "bad-request"
    for epsilon in (float("nan"), float("inf")):
        with pytest.raises(Refused) as refused:
            vault["patients"].ask(SQL, epsilon=epsilon)
        assert refused.value.code == "bad-budget"


def test_a_builder_may_nest_as_deeply_as_the_query_reader_lets_it(vault: OpenVault) -> None:
    deep = "age" + "+age" * 17
    shape = query_json(read_sql(f"SELECT SUM({deep}) AS n FROM patients", "patients"))
    body = {"data_set": "patients", "question": shape, "epsilon": 1}
    assert vault.call("price", body)["epsilon"] == 1
