"""Numbers and JSON made to be misread: nothing is charged that the specification does not let."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pytest

from support.served_vault import Service
from support.service_with_users import peopled, strays

SQL: Final = "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip"
LEAST, MOST = Decimal("0.000001"), Decimal(1000)
NUMBERS: Final = """
0 -0 0.0 -0.0 0e0 0E-9 1 -1 2 7 10 1.0 1.5 0.5 -0.5 01 00.1 .5 5. +1 1. -.5 1e1 1E+1 1e-1 1e-5 1e-6
9.99e-7 0.000001 0.0000009999999999 0.00000100000000000000001 1e-7 1e-9 1e-15 1e-16 1e-300 1e-320
4.9e-324 2.5e-324 1e-400 1e-999999 1e-999999999999 1e3 1000 1000.0000000001 1001 1e4 1e10 1e15
9007199254740993 9223372036854775807 9223372036854775808 18446744073709551616 -9223372036854775809
1e19 1e38 1e300 1.8e308 1e309 1e400 1e999999 1e999999999999 NaN nan Infinity -Infinity inf 1/3 "1/3"
"0/1" "1/0" "-1/3" "1/3 " "0x1" "1" "0.5" "1e-3" "NaN" "Infinity" "" " " "1_000" "\u0661" "\uff11"
1_000 0x10 0b1 0o7 1f 1L 1d true false null [] [1] {} {"a":1} "true" 0.1 0.30000000000000004
0.100000000000000005551115123125782702118158340454101562 123456789012345678901234567890
0.000000000000000000000000000000000000000000000000000000000000001
1000000000000000000000000000000000000000000000000000000000000000
00000000000000000000000000000000000000000000000000000000000000001 1--1 1e 1e+ e1 - + 1,5 1;
""".split()
TOO_LONG: Final = ["1" * 65, "0." + "0" * 63, "1e" + "0" * 63 + "1", "1" * 5000, "-" + "9" * 65]
FIELDS: Final = {
    "epsilon": '{"sql": "%s", "epsilon": @}',
    "delta": '{"sql": "%s", "epsilon": 0.001, "delta": @}',
    "error": '{"sql": "%s", "error": {"n": @}}',
    "people": '{"sql": "%s", "epsilon": 0.001, "people": @}',
    "max_groups": '{"sql": "%s", "epsilon": 0.001, "max_groups": @}',
    "max_rows": '{"sql": "%s", "epsilon": 0.001, "max_rows": @}',
    "split": '{"sql": "%s", "epsilon": 0.001, "split": {"n": @}}',
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with somebody of every role."""
    with peopled(tmp_path_factory.mktemp("served")) as running:
        yield running
        assert strays(running) == []


def ask(service: Service, what: str, body: bytes) -> tuple[int, Any]:
    """Return what a request of ada's with exactly this body gives."""
    return service.call("POST", f"/v1/data-sets/patients/{what}", body, token=service.tokens["ada"])


def spent(service: Service) -> Decimal:
    """Return what the data set has spent."""
    said = service.call("GET", "/v1/data-sets/patients/budget", token=service.owner())[1]
    return Decimal(str(said["spent"]["epsilon"]))


@pytest.mark.parametrize("field", FIELDS)
def test_a_number_is_charged_as_it_is_written_or_not_at_all(service: Service, field: str) -> None:
    before, charged = spent(service), Decimal(0)
    assert len(NUMBERS) * len(FIELDS) > 500
    for text in (*NUMBERS, *TOO_LONG):
        body = (FIELDS[field] % SQL).replace("@", text).encode()
        priced, price = ask(service, "price", body)
        status, said = ask(service, "ask", body)
        assert {priced, status} <= {200, 400, 422}, (text, said)
        assert (priced == 400) == (status == 400), text
        if status == 200:
            epsilon = Decimal(str(price["epsilon"]))
            assert LEAST <= epsilon <= MOST, text
            if field == "epsilon" and not text.startswith('"'):
                assert float(epsilon) == pytest.approx(float(Decimal(text)), rel=1e-12), text
            charged += 0 if said["receipt"]["free"] else epsilon
        if text in TOO_LONG:
            assert status == 400, text
    after = spent(service)
    assert float(after - before) == pytest.approx(float(charged), abs=1e-5)


def test_what_python_or_a_database_would_read_as_a_number_is_none(service: Service) -> None:
    """The list bites: among its texts are those that other readers take."""
    taken = {text for text in NUMBERS if _is_a_decimal(text)}
    for text in ("+1", ".5", "5.", "01", "1_000", "NaN", "Infinity"):
        assert text in taken
        status, _ = ask(service, "ask", (FIELDS["epsilon"] % SQL).replace("@", text).encode())
        assert status == 400, text


def _is_a_decimal(text: str) -> bool:
    try:
        Decimal(text)
    except InvalidOperation:
        return False
    return True


GOOD: Final = f'{{"sql": "{SQL}", "epsilon": 0.001}}'.encode()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("too deep", b'{"sql": ' + b"[" * 33 + b"]" * 33 + b"}"),
        ("far too deep", b"[" * 500_000),
        ("a key twice", b'{"epsilon": 0.001, "sql": "%s", "epsilon": 1}' % SQL.encode()),
        ("a key twice within", b'{"sql": "%s", "error": {"n": 1, "n": 2}}' % SQL.encode()),
        ("a key twice in disguise", b'{"epsilon": 0.1, "\\u0065psilon": 1, "sql": "x"}'),
        ("no UTF-8", GOOD.replace(b"zip", b"z\xffp")),
        ("overlong", GOOD.replace(b"z", b"\xc1\xba")),
        ("half a letter", GOOD.replace(b"zip", b"\\ud800")),
        ("UTF-16", GOOD.decode().encode("utf-16")),
        ("a byte order mark", b"\xef\xbb\xbf" + GOOD), ("two objects", GOOD + GOOD),
        ("letter 0", GOOD.replace(b"zip", b"\\u0000")), ("a raw letter 0", GOOD + b"\0"),
        ("a comment", GOOD + b"//x"), ("a comma", GOOD[:-1] + b",}"),
        ("a list", b"[" + GOOD + b"]"),
        ("not a key", GOOD.replace(b'"sql"', b"sql")), ("single quotes", GOOD.replace(b'"', b"'")),
        ("another data set", GOOD[:-1] + b', "data_set": ["patients"], "x": 1}'),
    ],
)  # fmt: skip
def test_a_body_that_two_could_read_differently_is_refused(
    service: Service, name: str, body: bytes
) -> None:
    before = spent(service)
    status, said = ask(service, "ask", body)
    assert status in (400, 422), (name, said)
    assert said["refused"]["code"] in ("bad-request", "not-in-language"), name
    assert spent(service) == before


def test_a_body_of_another_type_is_refused(service: Service) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                 "application/json-patch+json", "text/json", "application/cbor"):  # fmt: skip
        status, said = service.call(
            "POST", "/v1/data-sets/patients/ask", GOOD, token=service.tokens["ada"],
            headers={"Content-Type": kind},
        )  # fmt: skip
        assert (status, said["refused"]["code"]) == (400, "bad-request"), kind


def test_a_query_of_another_shape_is_refused(service: Service) -> None:
    for query in (
        "limit=0", "limit=1001", "limit=1.5", "limit=-1", "limit=%2B1", "limit=", "limit=1e1",
        "limit=1&limit=2", "limit=%D9%A1", "before=99999999999999999999", "x=1", "limit[]=1",
        "limit=0x1",
    ):  # fmt: skip
        path = f"/v1/questions?{query}"
        assert service.call("GET", path, token=service.tokens["ada"])[0] == 400, query
