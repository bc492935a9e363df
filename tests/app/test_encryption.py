"""A vault that is sealed at rest: whoever takes the disk has no row; whoever has its key, all."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.encryption import change_key
from sfumato.app.vault import OpenVault
from sfumato.vault.encryption_at_rest import MAGIC
from sfumato.vault.users import Caller
from support.encrypted_vaults import image, lies_open, make_sealed, memory
from support.process_tree import children, is_there, waited
from support.row_canaries import NAMES, NUMBERS, found_in
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import SFUMATO, card, make_vault, run, write_csv

OWNER = Caller("owner", frozenset({"own", "ask", "read"}))
CARD = """
unit = "who"
people = "canary-town"
version = "%s"
budget = { epsilon = 1000, delta = 1e-6 }
[columns.day]
type = "date"
[columns.note]
type = "text"
[columns.salary]
type = "integer"
lower = 0
upper = 100000000
"""
EPSILON = 150  # at which a draw is other than zero once in 10**30 times
HEADER = ("who", "name", "day", "note", "salary")
STREAM = (
    "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM town "
    "WHERE salary > 0 GROUP BY day"
)
TERMS = {"start": "2026-01-01", "periods": 4, "rows": 4, "epsilon": EPSILON}


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with memory() as made:
        yield made


def rows(more: str = "") -> list[tuple[object, ...]]:
    return [
        (f"p{n}{more}", NAMES[n % 20], f"2026-01-0{1 + n % 4}", NAMES[n % 20], NUMBERS[n % 20])
        for n in range(300)
    ]


def number_in(vault: OpenVault, sql: str) -> float:
    return float(str(vault["town"].ask(sql, epsilon=EPSILON).rows[0][0]))


def a_life(vault: OpenVault, folder: Path) -> None:
    """Do all that writes of rows: add, upload, ask, count days, add again from an upload."""
    vault.add("town", write_csv(folder / "gone.csv", HEADER, rows()), card(CARD % "1"))
    assert number_in(vault, "SELECT COUNT(*) FROM town") == 300
    vault.open_stream("town", "daily", STREAM, **TERMS)  # type: ignore[arg-type]  # of several kinds
    vault.close_days("town", "daily", until="2026-01-02")
    desk = vault.house.desk
    for name in ("second.csv", "left.csv"):
        incoming = desk.uploads.begin(OWNER, name, None)
        for at in range(0, (folder / "gone.csv").stat().st_size, 1000):
            incoming.take((folder / "gone.csv").read_bytes()[at : at + 1000])
        kept = incoming.kept()
        incoming.end(is_kept=True)
        assert kept.size == (folder / "gone.csv").stat().st_size
        if name == "second.csv":
            assert ("note", "text") in vault.describe(kept.path)
            vault.add("town", kept.path, card(CARD % "2"))
    broken = desk.uploads.begin(OWNER, "broken.csv", None)
    broken.take((folder / "gone.csv").read_bytes())
    os.close(broken.descriptor)  # as a kill does
    assert number_in(vault, "SELECT COUNT(*) FROM town WHERE salary > 0") == 300
    vault.close_days("town", "daily", until="2026-01-04")
    (folder / "gone.csv").unlink()  # the owner's own copy


@pytest.mark.parametrize("is_sealed", [True, False])
def test_whoever_takes_the_disk_finds_no_row(
    tmp_path: Path, scratch: Path, is_sealed: bool
) -> None:
    """The unsealed vault is the control: there the same search finds them."""
    place, key = make_sealed(tmp_path) if is_sealed else (make_vault(tmp_path), None)
    home = tmp_path / "home"
    home.mkdir()
    with sfumato.open(place, at_rest_key=key) as vault:
        a_life(vault, tmp_path)
    named = {"HOME": str(home)} | ({} if key is None else {"SFUMATO_AT_REST_KEY": key})
    asked = run(place, "ask", "town", "SELECT COUNT(*) FROM town", "--epsilon", "1", **named)
    assert asked.returncode == 0, asked.stderr
    values = {*NAMES, *map(str, NUMBERS)}
    found = found_in(image(place, home, tmp_path / "anchors")) & values
    assert bool(found) is not is_sealed
    assert lies_open(scratch) == []
    places = [*place.glob("tables/*.duckdb"), *place.glob("people/*"), *place.rglob("used.duckdb")]
    places += [*place.glob("incoming/*.csv*"), place / "keys" / "salt", place / "keys" / "receipts"]
    assert len(places) >= 9
    assert {path.read_bytes().startswith(MAGIC) for path in places} == {is_sealed}


def test_an_add_that_is_killed_leaves_nothing_open(tmp_path: Path, scratch: Path) -> None:
    place, key = make_sealed(tmp_path)
    source = write_csv(
        tmp_path / "many.csv", HEADER, [row for n in range(300) for row in rows(str(n))]
    )
    (tmp_path / "card.toml").write_text(CARD % "1")
    words = [
        "add",
        "town",
        str(source),
        "--card",
        str(tmp_path / "card.toml"),
        "--vault",
        str(place),
    ]
    environment = {**os.environ, "SFUMATO_AT_REST_KEY": key}
    adding = subprocess.Popen(
        [*SFUMATO, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert waited(lambda: any(path.name == "rows.duckdb" for path in lies_open(scratch)))
    below = children(adding.pid)
    adding.send_signal(signal.SIGKILL)
    adding.wait()
    source.unlink()
    assert waited(lambda: not any(is_there(pid) for pid in below))
    assert found_in(image(place)) & {*NAMES, *map(str, NUMBERS)} == set()
    with sfumato.open(place, at_rest_key=key) as vault:
        assert lies_open(scratch) == []
        vault.add("town", write_csv(tmp_path / "few.csv", HEADER, rows()), card(CARD % "1"))
        assert number_in(vault, "SELECT COUNT(*) FROM town") == 300


def refusal_of(place: Path, key: str | None) -> str:
    with pytest.raises(Refused) as refused:
        sfumato.open(place, at_rest_key=key)
    return refused.value.code


def test_nothing_but_the_vaults_own_key_opens_it_and_it_can_be_changed(
    tmp_path: Path, scratch: Path
) -> None:
    place, key = make_sealed(tmp_path)
    with sfumato.open(place, at_rest_key=key) as vault:
        vault.add("town", write_csv(tmp_path / "t.csv", HEADER, rows()), card(CARD % "1"))
    other = tmp_path / "other"
    other.write_text("0" * 64)
    other.chmod(0o600)
    for wrong in (None, str(other), str(tmp_path / "absent"), "command:false", "command:echo x"):
        assert refusal_of(place, wrong) == "at-rest-key"
    new = str(tmp_path / "new" / "key")
    changed = run(place, "change-key", new, SFUMATO_AT_REST_KEY=key, SFUMATO_SCRATCH=str(scratch))
    assert changed.returncode == 0, changed.stderr
    assert "If you lose the key" in changed.stdout
    assert refusal_of(place, key) == "at-rest-key"
    with sfumato.open(place, at_rest_key=f"command:cat {new}") as vault:
        assert number_in(vault, "SELECT COUNT(*) FROM town") == 300


def test_what_was_changed_on_the_disk_is_refused_with_a_code(tmp_path: Path, scratch: Path) -> None:
    place, key = make_sealed(tmp_path)
    with sfumato.open(place, at_rest_key=key) as vault:
        vault.add("town", write_csv(tmp_path / "t.csv", HEADER, rows()), card(CARD % "1"))
    (table,) = place.glob("tables/*.duckdb")
    whole = table.read_bytes()
    codes = []
    changed = whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]
    for file, what in ((whole[:-9], "COUNT(*)"), (changed, "SUM(salary)")):
        table.write_bytes(file)
        with sfumato.open(place, at_rest_key=key) as vault, pytest.raises(Refused) as refused:
            vault["town"].ask(f"SELECT {what} FROM town", epsilon=1)
        codes.append(refused.value.code)
    assert codes == ["question-failed"] * 2
    for name in ("salt", "receipts", "at-rest"):
        before = (place / "keys" / name).read_bytes()
        (place / "keys" / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert refusal_of(place, key) in ("vault-missing", "at-rest-key")
        (place / "keys" / name).write_bytes(before)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o640, 0o620])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, scratch: Path, mode: int) -> None:
    place, key = make_sealed(tmp_path)
    os.chown(key, -1, 65534)  # a group of others
    Path(key).chmod(mode)
    assert refusal_of(place, key) == "at-rest-key"
    Path(key).chmod(0o400)
    sfumato.open(place, at_rest_key=key).close()


def test_a_key_in_the_vaults_own_folder_is_refused_and_nothing_is_made(
    tmp_path: Path, scratch: Path
) -> None:
    place = tmp_path / "vault"
    (tmp_path / "link").symlink_to(place)
    for key in (place / "key", place / "keys" / "key", tmp_path / "link" / "key"):
        with pytest.raises(Refused) as refused:
            sfumato.create(place, anchor=tmp_path / "anchor", at_rest_key=str(key))
        assert refused.value.code == "at-rest-key"
    assert not place.exists()


def test_what_cannot_be_sealed_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, place = str(tmp_path / "key"), tmp_path / "vault"
    with pytest.raises(Refused) as refused:
        sfumato.create(place, engine="local[2]", at_rest_key=key)
    assert refused.value.code == "at-rest-not-possible"
    monkeypatch.setenv("SFUMATO_SCRATCH", str(tmp_path))  # which is on a disk
    with pytest.raises(Refused) as refused:
        sfumato.create(place, at_rest_key=key)
    assert refused.value.code == "at-rest-not-possible"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_others_in_memory_is_not_used(tmp_path: Path, scratch: Path) -> None:
    before = set(scratch.iterdir())
    place, key = make_sealed(tmp_path)
    (ours,) = set(scratch.iterdir()) - before
    ours.chmod(0o755)
    assert refusal_of(place, key) == "at-rest-not-possible"
    ours.chmod(0o700)
    sfumato.open(place, at_rest_key=key).close()


@pytest.mark.parametrize("is_others", [True, False])
def test_a_place_that_others_have_made_anew_is_never_written_to(
    tmp_path: Path, scratch: Path, is_others: bool
) -> None:
    """Who logs out may lose what is theirs in memory, while their vault is still open."""
    before = set(scratch.iterdir())
    place, key = make_sealed(tmp_path)
    (ours,) = set(scratch.iterdir()) - before
    source = write_csv(tmp_path / "t.csv", HEADER, rows())
    with sfumato.open(place, at_rest_key=key) as vault:
        ours.rmdir()
        ours.mkdir(mode=0o777 if is_others else 0o700)
        ours.chmod(0o777 if is_others else 0o700)
        if is_others:
            with pytest.raises(Refused) as refused:
                vault.describe(source)
            assert refused.value.code == "at-rest-not-possible"
        else:
            assert ("note", "text") in vault.describe(source)
        assert list(ours.iterdir()) == []


def test_a_place_or_a_key_that_cannot_be_made_is_refused(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, key = make_sealed(tmp_path)
    (tmp_path / "file").touch()
    made = set(tmp_path.iterdir())
    with pytest.raises(Refused) as refused:
        sfumato.create(tmp_path / "other", at_rest_key=str(tmp_path / "file" / "key"))
    assert refused.value.code == "at-rest-key"
    assert set(tmp_path.iterdir()) == made
    with pytest.raises(Refused) as refused:
        change_key(place, key, str(tmp_path / "file" / "key"))
    assert refused.value.code == "at-rest-key"
    monkeypatch.setenv("SFUMATO_SCRATCH", str(scratch / "gone"))  # as after a reboot
    assert refusal_of(place, key) == "at-rest-not-possible"


def test_who_was_to_have_a_vault_once_has_nothing_after_the_next_change(
    tmp_path: Path, scratch: Path
) -> None:
    """A change of the key that was killed leaves the vault's key, sealed by one not in force."""
    place, key = make_sealed(tmp_path)
    before = {path.name for path in (place / "keys").iterdir()}
    half = place / "keys" / f".at-rest-{'0' * 16}"
    half.write_bytes((place / "keys" / "at-rest").read_bytes())
    change_key(place, key, str(tmp_path / "new"))
    assert {path.name for path in (place / "keys").iterdir()} == before
    sfumato.open(place, at_rest_key=str(tmp_path / "new")).close()


def test_a_key_for_a_vault_without_one_is_not_taken_silently(tmp_path: Path) -> None:
    place = make_vault(tmp_path)
    (tmp_path / "key").write_text("0" * 64)
    (tmp_path / "key").chmod(0o600)
    assert refusal_of(place, str(tmp_path / "key")) == "at-rest-key"
    sfumato.open(place).close()


@needs_bubbles
def test_a_program_runs_on_rows_that_lie_open_in_memory_alone(
    tmp_path: Path, scratch: Path
) -> None:
    def mean_salary(rows):  # type: ignore[no-untyped-def]  # travels as its text
        return rows["salary"].mean()

    place, key = make_sealed(tmp_path)
    with sfumato.open(place, at_rest_key=key) as vault:
        vault.add("town", write_csv(tmp_path / "t.csv", HEADER, rows()), card(CARD % "1"))
        hurry(vault)
        answer = vault["town"].run(
            mean_salary, outputs={"mean": (0, 10**8)}, epsilon=900, blocks=2, columns=["salary"],
            cpu_s=3,
        )  # fmt: skip
        assert float(str(answer.rows[0][0])) == pytest.approx(sum(NUMBERS) / 20, rel=0.2)
    (tmp_path / "t.csv").unlink()
    assert found_in(image(place)) & {*NAMES, *map(str, NUMBERS)} == set()
    assert lies_open(scratch) == []


def test_an_owners_report_is_sealed_as_the_rows_are(tmp_path: Path, scratch: Path) -> None:
    place, key = make_sealed(tmp_path)
    with sfumato.open(place, at_rest_key=key) as vault:
        vault.add("town", write_csv(tmp_path / "t.csv", HEADER, rows()), card(CARD % "1"))
        (report,) = place.glob("tables/*.report")
        assert report.read_bytes().startswith(MAGIC)
        assert b"%" not in report.read_bytes()[:16]
        assert vault.add_report("town")["tables"]
        report.write_bytes(report.read_bytes()[:-1] + b"\0")
        assert vault.add_report("town")["tables"] == []
