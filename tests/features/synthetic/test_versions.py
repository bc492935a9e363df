"""A DP twin and the owner's new versions: it is of the rows that it was begun on, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.features.synthetic.measurement_port import unmerged
from sfumato.features.synthetic.measurement_release import PrivateDevice, price_of
from sfumato.features.synthetic.price_split import counted_tables, most_events
from sfumato.release.release_order import Asker
from support.small_vaults import card, open_with, write_csv

CARD = """
unit = "who"
version = "%s"
budget = { epsilon = 500, delta = 0 }
[columns.zip]
type = "text"
keys = ["a", "b", "c"]
[columns.sick]
type = "boolean"
[columns.age]
type = "integer"
lower = 0
upper = 99
"""
METHODS = ("independent", "mst", "aim")


def rows(people: int, zip_code: str) -> list[tuple[object, ...]]:
    return [(f"p{n}", zip_code, "yes" if n % 3 else "no", n % 90) for n in range(people)]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    source = write_csv(tmp_path / "x.csv", ("who", "zip", "sick", "age"), rows(300, "a"))
    with open_with(tmp_path, "clinic", source, CARD % "1") as opened:
        yield opened


def add_another_version(vault: OpenVault, folder: Path, shape: str = CARD % "2") -> None:
    source = write_csv(folder / "y.csv", ("who", "zip", "sick", "age"), rows(40, "c"))
    vault.add("clinic", source, card(shape))


def spent(vault: OpenVault) -> Any:
    return dict(vault["clinic"].budget["spent"])


@pytest.mark.parametrize("method", METHODS)
def test_a_twin_asked_for_again_is_the_one_it_was_and_says_of_which_version(
    vault: OpenVault, tmp_path: Path, method: str
) -> None:
    first = vault["clinic"].dp_twin(epsilon=20, method=method, op="mine")
    before = spent(vault)
    add_another_version(vault, tmp_path)
    again = vault["clinic"].dp_twin(epsilon=20, method=method, op="mine")
    assert again.files == first.files
    assert again.stamp["version"] == "1"
    assert spent(vault) == before
    other = vault["clinic"].dp_twin(epsilon=20, method=method, op="another")
    assert other.stamp["version"] == "2"
    for twin, most in ((other, "c"), (again, "a")):  # with noise, a few may be elsewhere
        zips = [row["zip"] for row in twin.rows()]
        assert zips.count(most) > len(zips) / 2


def test_a_twin_outlives_a_card_that_it_could_not_be_made_of(
    vault: OpenVault, tmp_path: Path
) -> None:
    first = vault["clinic"].dp_twin(epsilon=20, op="mine")
    narrower = (CARD % "2").replace('keys = ["a", "b", "c"]\n', "")
    add_another_version(vault, tmp_path, narrower)
    assert vault["clinic"].dp_twin(epsilon=20, op="mine").files == first.files


def begin(vault: OpenVault, method: str, epsilon: int) -> None:
    """Look at the first column as a twin does, and go no further: as one that was killed."""
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    (table,) = counted_tables(listing.card, method, ())
    events = most_events([table], method)
    device = PrivateDevice(
        vault.house.queries.door,
        listing,
        Asker("owner"),
        "mine",
        price_of(Fraction(epsilon), Fraction(0), events),
        table.columns,
        "clinic",
        lambda _: listing.card,
        lambda: None,
        lambda _: None,
    )
    share = {"independent": Fraction(1), "mst": Fraction(1, 4), "aim": Fraction(1, 5)}[method]
    device.count((0,), unmerged(device.sizes), share / len(device.sizes))


@pytest.mark.parametrize("method", METHODS)
def test_a_twin_that_was_not_finished_is_finished_on_its_own_version_alone(
    vault: OpenVault, tmp_path: Path, method: str
) -> None:
    begin(vault, method, 20)
    before = spent(vault)
    add_another_version(vault, tmp_path)
    with pytest.raises(Refused) as refused:
        vault["clinic"].dp_twin(epsilon=20, method=method, op="mine")
    assert refused.value.code == "op-reused"
    assert "version" in refused.value.cause
    assert spent(vault) == before


@pytest.mark.parametrize("method", METHODS)
def test_a_twin_that_was_not_finished_goes_on_where_it_was(vault: OpenVault, method: str) -> None:
    begin(vault, method, 20)
    before = spent(vault)["epsilon"]
    assert vault["clinic"].dp_twin(epsilon=20, method=method, op="mine").stamp["version"] == "1"
    assert before < spent(vault)["epsilon"] <= 20


def test_the_error_of_a_twin_is_bought_while_its_version_is_the_one_of_now(
    vault: OpenVault, tmp_path: Path
) -> None:
    def twin(op: str, error: int | None = 1) -> Any:
        made = vault["clinic"].dp_twin(epsilon=20, method="independent", op=op, error_epsilon=error)
        return made.stamp

    first = twin("mine")
    twin("bare", None)  # the same questions: answered before, and its own operation all the same
    before = spent(vault)
    add_another_version(vault, tmp_path)
    assert twin("mine")["error"] == first["error"]
    for late in (twin("mine", 2), twin("bare")):
        assert late["version"] == "1"
        assert late["error"]["refused"] == "op-reused"
        assert "earlier version" in late["error"]["says"]
        assert "not finished" not in late["error"]["says"]  # the twin was
    assert spent(vault) == before


VISITS = (
    CARD.replace("%s", "1")
    + """
[tables.visits]
max_rows = 5
limits = { rows_per_person = 3 }
columns = { ward = { type = "text", keys = ["n", "s"] } }
"""
)


def test_what_a_card_lets_no_look_be_is_refused_before_the_first_is_paid(tmp_path: Path) -> None:
    """The first table could be counted; of the second more rows of a person are asked than kept."""
    source = write_csv(tmp_path / "x.csv", ("who", "zip", "sick", "age"), rows(50, "a"))
    visits = write_csv(tmp_path / "v.csv", ("who", "ward"), [("p1", "n")])
    with open_with(tmp_path, "clinic", source, VISITS, tables={"visits": visits}) as vault:
        with pytest.raises(Refused) as refused:
            vault["clinic"].dp_twin(epsilon=20, method="independent", op="mine")
        assert "rows of a person that the data card allows" in refused.value.cause
        assert spent(vault)["epsilon"] == 0


WIDE = """
unit = "who"
budget = { epsilon = 1000, delta = 0 }
[columns.one]
type = "text"
keys = [%s]
[columns.two]
type = "text"
keys = [%s]
"""


@pytest.mark.parametrize("method", ["mst", pytest.param("aim", marks=pytest.mark.slow)])
def test_columns_of_very_many_categories_are_counted_in_pairs_all_the_same(
    tmp_path: Path, method: str
) -> None:
    keys = [f"k{place:03d}" for place in range(300)]
    listed = ", ".join(f'"{key}"' for key in keys)
    people = [(f"p{n}-{key}", key, key) for n in range(3) for key in keys]
    source = write_csv(tmp_path / "x.csv", ("who", "one", "two"), people)
    with open_with(tmp_path, "wide", source, WIDE % (listed, listed)) as vault:
        twin = vault["wide"].dp_twin(epsilon=900, method=method, seed="s")
        found = twin.rows()
        alike = sum(row["one"] == row["two"] for row in found) / len(found)
        assert len({row["one"] for row in found}) > 250  # those of the rest are there as well
        assert alike > 0.4  # as many as are told apart; by chance it would be one in 300
