"""The airlock whole: a program runs once in the sandbox, people look, and only then bytes leave."""

from __future__ import annotations

import base64
import json
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.model import begun as begin
from sfumato.features.airlock.model import sum_of
from sfumato.features.airlock.release import AirlockPorts
from sfumato.sandbox.ports import BlockJob, SandboxLimits, SandboxStopped
from sfumato.vault.ports import Grant
from sfumato.vault.users import Caller
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv
from support.unconfined_sandbox import Bare, lay_bare

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 10, delta = 0 }
[ask]
who = ["researchers"]
[airlock]
reviewers = ["rita", "rolf", "rosa"]
smallest = 10
[columns.site]
type = "text"
keys = ["north", "south", "east"]
[columns.wage]
type = "number"
lower = 0
upper = 100000
step = 1
"""
PEOPLE = [
    (f"canary-{n:03d}", ("north", "south")[n % 2] if n < 56 else "east", 90_000 if n == 0 else 100)
    for n in range(60)
]
TABLE = """
import csv, os, sys
from collections import defaultdict
rows = list(csv.DictReader(open(sys.argv[1] + "/participants.tsv"), delimiter="\\t"))
groups = defaultdict(list)
for row in rows:
    groups[row["site"]].append(float(row["wage"]))
with open(sys.argv[2] + "/table.csv", "w") as file:
    file.write("site,n,wage\\n")
    for site in sorted(groups):
        file.write("%s,%d,%d\\n" % (site, len(groups[site]), sum(groups[site])))
open(sys.argv[2] + "/figure.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg'><g/></svg>")
open(sys.argv[2] + "/unasked.txt", "w").write("canary")
print("canary", file=sys.stderr)
sys.exit(3)
"""
GROUPED = {"path": "table.csv", "by": ["site"], "count": "n", "of": "wage"}
FIGURE = {"path": "figure.svg"}
SMALL = "import sys; open(sys.argv[2] + '/t.csv', 'w').write('site,n\\nnorth,50\\nsouth,%d\\n')"


@pytest.fixture(scope="module")
def vault(real: OpenVault) -> OpenVault:
    """Return the vault with programs that run quickly."""
    return real


@pytest.fixture(autouse=True)
def bare(request: pytest.FixtureRequest, real: OpenVault) -> None:
    """Give every test the quick sandbox, but for those that need a real one."""
    if request.node.get_closest_marker("skipif") is None:
        return lay_bare(real)
    desk = real.house.desk
    desk.airlock.__dict__["door"] = AirlockPorts(desk.pipelines.door, desk.airlock.door.files)
    return None


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("airlock")
    source = write_csv(folder / "t.csv", ("who", "site", "wage"), PEOPLE)
    with sfumato.open(make_vault(folder)) as made:
        made.add("town", source, card(CARD))
        text = CARD.replace('"town"', '"others"').split("[airlock]")[0]
        made.add("shut", source, card(text), different_people="the test")
        for user in ("ada", "ben"):
            made.enrol(user, "researchers")
        made.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool
        yield made


def of(vault: OpenVault, user: str) -> OpenVault:
    return OpenVault(vault.house, user)


def call(vault: OpenVault, user: str, verb: str, request: str, **more: Any) -> Any:
    return of(vault, user).call(f"{verb}-airlock", {"request": request, **more})


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    assert refused.value.__context__ is None
    return refused.value.code


def submitted(vault: OpenVault, source: str = TABLE, user: str = "ada", **other: Any) -> str:
    body = {"data_set": "town", "source": source, "files": [GROUPED, FIGURE], "cpu_s": 5, **other}
    made = of(vault, user).call("submit-airlock", body)
    return str(made["request"])


def reviewed(vault: OpenVault, source: str = TABLE, **other: Any) -> str:
    request = submitted(vault, source, **other)
    assert call(vault, "owner", "run", request)["state"] == "in review"
    return request


def vote(vault: OpenVault, request: str, user: str, says: str = "release") -> Any:
    seen = call(vault, user, "show", request)
    said = {"seal": seen["seal"], "draft": seen["draft"]}
    return call(vault, user, "vote", request, says=says, **said)


def notes(vault: OpenVault, request: str) -> list[str]:
    entries = vault.house.ledger.store.entries()
    return [entry.kind for entry in entries if request in entry.body]


def place_of(vault: OpenVault, request: str) -> Path:
    found = vault.house.desk.airlock.store.find(request)
    assert found is not None
    return vault.house.folder / "airlock" / found.place


@needs_bubbles
def test_what_two_others_have_seen_leaves_and_the_chain_has_its_hash(vault: OpenVault) -> None:
    request = reviewed(vault)
    for user in ("ada", "rita"):
        assert code_of(lambda user=user: call(vault, user, "fetch", request)) == "airlock-waits"  # type: ignore[misc]  # bound at once
    shown = call(vault, "rita", "show", request)
    assert shown["label"].startswith("reviewers-only")
    checks = {(one["path"], one["check"]) for one in shown["findings"]}
    assert checks >= {
        ("table.csv", "small-group"),  # four people in the east
        ("table.csv", "small-count"),
        ("table.csv", "unrounded"),  # 28 people are no multiple of five
        ("table.csv", "dominance"),  # one wage of 90,000 among those of 100
        ("figure.svg", "eyes"),
    }
    assert [one["path"] for one in shown["files"]] == ["figure.svg", "table.csv"]
    vote(vault, request, "rita")
    assert code_of(lambda: call(vault, "rita", "release", request)) == "airlock-waits"
    vote(vault, request, "rita")
    assert code_of(lambda: call(vault, "rita", "release", request)) == "airlock-waits"
    vote(vault, request, "owner")
    receipt = call(vault, "rita", "release", request)["receipt"]
    found = call(vault, "ada", "fetch", request)
    table = base64.b64decode({f["path"]: f["base64"] for f in found["files"]}["table.csv"])
    assert table.decode().splitlines()[1:] == ["east,4,400", "north,28,92700", "south,28,2800"]
    entry = vault.house.ledger.store.entry(receipt["seq"])
    assert entry is not None
    body = json.loads(entry.body)
    assert (entry.kind, body["guarantee"]) == ("not-dp-release", "reviewed (not DP)")
    assert body["files"]["table.csv"] == sum_of(table) == receipt["files"]["table.csv"]
    assert body["reviewers"] == ["owner", "rita"]
    assert "non-DP releases exist" in receipt["not_dp"]
    marks = {found["guarantee"], found["files"][0]["guarantee"], found["receipt"]["guarantee"]}
    assert marks == {"reviewed (not DP)"}
    answer = vault["town"].ask("SELECT COUNT(*) FROM town", epsilon=0.1)
    assert "non-DP" in str(answer.receipt["not_dp"])
    kinds = notes(vault, request)
    assert kinds.index("airlock-run") < kinds.index("airlock-vote") < kinds.index("not-dp-release")
    assert vault.house.ledger.verified()["ok"]


def test_a_reviewer_whom_the_author_let_in_does_not_count(vault: OpenVault) -> None:
    vault.enrol("cleo", "researchers")
    request = submitted(vault, user="cleo")
    call(vault, "owner", "run", request)
    vault.house.ledger.note("user-invited", {"user": "rolf", "by": "cleo"})
    assert code_of(lambda: vote(vault, request, "rolf")) == "not-allowed"
    assert vote(vault, request, "rita")["state"] == "in review"
    vote(vault, request, "rolf", "reject")  # a word against it is free
    call(vault, "cleo", "withdraw", request)


def test_an_author_is_shown_the_same_whatever_the_program_has_done(vault: OpenVault) -> None:
    shown = []
    for source in (TABLE, "raise SystemExit(1)", "import os; os._exit(4)"):
        request = reviewed(vault, source)
        seen = call(vault, "ada", "show", request)
        shown.append(
            {
                k: v
                for k, v in seen.items()
                if k not in ("request", "at", "expires", "program", "digest")
            }
        )
        assert not {"files", "findings", "seal", "votes", "draft"} & set(seen)
        call(vault, "ada", "withdraw", request)
        assert not (vault.house.folder / "airlock" / "x").exists()
    assert shown[0] == shown[1] == shown[2]


def without_moments(seen: Any) -> dict[str, Any]:
    return {k: v for k, v in seen.items() if k not in ("request", "at", "expires", "ended_at")}


@pytest.mark.parametrize("user", ["ada", "owner"])
def test_a_program_that_makes_the_host_fail_tells_its_author_nothing(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    def stopped(_job: BlockJob) -> None:
        raise SandboxStopped

    well = submitted(vault, user=user)
    call(vault, "owner", "run", well)
    ill = submitted(vault, user=user)
    with monkeypatch.context() as failing:
        failing.setattr(vault.house.desk.airlock.door.programs.sandbox, "run_each", stopped)
        call(vault, "owner", "run", ill)
    kept = vault.house.desk.airlock.store.find(ill)
    assert kept is not None
    assert kept.state == call(vault, "rita", "show", ill)["state"] == "failed"
    listed: Any = of(vault, user).call("airlock", {"data_set": "town"})["requests"]
    states = {one["request"]: one["state"] for one in listed}
    assert states[well] == states[ill] == "in review"
    acts = ("show", "fetch", "run", "withdraw", "show", "fetch", "withdraw")
    said = [[answer(vault, user, act, request) for act in acts] for request in (well, ill)]
    assert said[0] == said[1]


@pytest.mark.parametrize("ends", [("ada", "withdraw"), ("owner", "decline")])
def test_the_chain_grows_alike_whether_a_run_failed_or_not(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch, ends: tuple[str, str]
) -> None:
    """Its author asks other questions meanwhile, and a receipt says how long the chain is."""

    def stopped(_job: BlockJob) -> None:
        raise SandboxStopped

    def lengths(request: str) -> list[int]:
        seen = [vault.house.ledger.store.head().seq]
        for user, act in (("owner", "run"), ends):
            call(vault, user, act, request)
            seen.append(vault.house.ledger.store.head().seq)
        return [later - first for first, later in pairwise(seen)]

    well = lengths(submitted(vault))
    ill = submitted(vault)
    monkeypatch.setattr(vault.house.desk.airlock.door.programs.sandbox, "run_each", stopped)
    assert lengths(ill) == well
    bodies = [json.loads(e.body) for e in vault.house.ledger.store.entries() if "airlock" in e.kind]
    over = [body for body in bodies if body["request"] == ill][-1]
    assert "was" not in over  # the hash of a later receipt would confirm a guess of it
    assert "failed" not in json.dumps(over)


def test_an_owner_declines_what_has_failed_and_its_author_reads_that_alone(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_job: BlockJob) -> None:
        raise SandboxStopped

    ill = submitted(vault)
    monkeypatch.setattr(vault.house.desk.airlock.door.programs.sandbox, "run_each", stopped)
    assert call(vault, "owner", "run", ill)["state"] == "failed"
    monkeypatch.undo()
    well = reviewed(vault)
    for request in (well, ill):
        assert call(vault, "owner", "decline", request)["state"] == "declined"
    assert answer(vault, "ada", "show", well) == answer(vault, "ada", "show", ill)


def answer(vault: OpenVault, user: str, act: str, request: str) -> object:
    """Return what somebody is told of an act, but for what tells one request from another."""
    try:
        return without_moments(call(vault, user, act, request))
    except Refused as refused:
        return str(refused).replace(request, "")


def test_bytes_that_were_swapped_after_the_votes_do_not_leave(vault: OpenVault) -> None:
    request = reviewed(vault)
    vote(vault, request, "rita")
    vote(vault, request, "rolf")
    file = place_of(vault, request) / "1"
    kept = file.read_bytes()
    file.write_bytes(kept.replace(b"2800", b"2801"))
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    file.write_bytes(kept)
    call(vault, "owner", "release", request)
    file.write_bytes(kept.replace(b"2800", b"2801"))  # after the release, before the fetch
    assert code_of(lambda: call(vault, "ada", "fetch", request)) == "airlock-changed"
    file.write_bytes(kept)
    assert call(vault, "ada", "fetch", request)["state"] == "released"


def test_a_state_that_the_chain_does_not_know_gives_nothing_away(vault: OpenVault) -> None:
    request = reviewed(vault)
    store = vault.house.desk.airlock.store
    found = store.find(request)
    assert found is not None
    assert store.change(replace(found, state="released", revision=found.revision + 1))
    assert code_of(lambda: call(vault, "ada", "fetch", request)) == "airlock-waits"
    assert call(vault, "ada", "show", request)["state"] == "in review"
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    assert store.change(replace(found, state="in review", revision=found.revision + 2))
    call(vault, "owner", "decline", request)


def test_an_edit_takes_votes_back_and_its_editor_has_none(vault: OpenVault) -> None:
    request = reviewed(vault)
    vote(vault, request, "rita")
    vote(vault, request, "rolf")
    old = place_of(vault, request)
    call(vault, "rosa", "trim", request, path="figure.svg")
    assert not old.exists()
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    blunt = base64.b64encode(b"site,n,wage\nnorth,30,120000\nsouth,30,28000\n").decode()
    call(vault, "rosa", "replace", request, path="table.csv", base64=blunt)
    assert code_of(lambda: vote(vault, request, "rosa")) == "not-allowed"
    vote(vault, request, "rita")
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    vote(vault, request, "rolf")
    call(vault, "owner", "release", request)
    files = call(vault, "ada", "fetch", request)["files"]
    assert [(one["path"], one["base64"]) for one in files] == [("table.csv", blunt)]


def test_a_file_of_a_wrong_kind_does_not_leave_whoever_wants_it(vault: OpenVault) -> None:
    source = TABLE.replace("<g/>", "<script>1</script>")
    request = reviewed(vault, source)
    for user in ("rita", "rolf", "owner"):
        vote(vault, request, user)
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-unsafe"
    assert "not-dp-release" not in notes(vault, request)
    assert code_of(lambda: call(vault, "ada", "trim", request, path="figure.svg")) == "not-allowed"
    call(vault, "rosa", "trim", request, path="figure.svg")
    assert code_of(lambda: call(vault, "rosa", "trim", request, path="figure.svg")) == "bad-airlock"
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    call(vault, "owner", "decline", request)


def test_what_differs_by_few_people_from_an_earlier_release_is_found(vault: OpenVault) -> None:
    files = [{"path": "t.csv", "by": ["site"], "count": "n"}]
    first = reviewed(vault, SMALL % 30, files=files)
    second = reviewed(vault, SMALL % 31, files=files)
    for request, users in ((second, ("rita",)), (first, ("rita", "rolf"))):
        for user in users:
            vote(vault, request, user)
    call(vault, "owner", "release", first)
    shown = call(vault, "rolf", "show", second)
    found = [one for one in shown["findings"] if one["check"] == "difference"]
    assert any(first in one["says"] for one in found)
    said = {"seal": shown["seal"], "draft": shown["draft"]}
    call(vault, "rolf", "vote", second, says="release", **said)
    # rita voted before there was anything to differ from, so her word is on something else
    assert code_of(lambda: call(vault, "owner", "release", second)) == "airlock-waits"
    vote(vault, second, "rita")
    call(vault, "owner", "release", second)


def test_two_against_it_end_it_and_nothing_is_left(vault: OpenVault) -> None:
    request = reviewed(vault)
    place = place_of(vault, request)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "1").stat().st_mode) == 0o600
    vote(vault, request, "rita", "reject")
    assert vote(vault, request, "rolf", "reject")["state"] == "rejected"
    assert not place.exists()
    assert code_of(lambda: call(vault, "ada", "fetch", request)) == "airlock-waits"
    assert code_of(lambda: call(vault, "owner", "run", request)) == "airlock-waits"


class Later:
    """A clock that is forty days on."""

    def now(self) -> str:
        return (datetime.now(UTC) + timedelta(days=40)).isoformat()


def test_a_request_that_waited_too_long_is_over_and_leaves_no_file(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = reviewed(vault)
    place = place_of(vault, request)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    monkeypatch.setitem(vault.house.desk.airlock.__dict__, "clock", Later())
    assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    assert call(vault, "ada", "show", request)["state"] == "expired"
    assert not place.exists()
    assert "airlock-expired" in notes(vault, request)


def test_who_is_not_on_the_card_any_more_has_no_vote(vault: OpenVault, tmp_path: Path) -> None:
    request = reviewed(vault)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    rows = [(f"new-{who}", site, wage) for who, site, wage in PEOPLE]
    source = write_csv(tmp_path / "t.csv", ("who", "site", "wage"), rows)
    fewer = 'version = "2"\n' + CARD.replace('"rita", ', "")
    vault.add("town", source, card(fewer))
    try:
        assert code_of(lambda: call(vault, "rita", "show", request)) == "airlock-unknown"
        assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
    finally:
        vault.add("town", source, card('version = "3"\n' + CARD))
    call(vault, "owner", "decline", request)


def test_a_half_released_request_goes_by_the_card_of_today(
    vault: OpenVault, tmp_path: Path
) -> None:
    """Killed between the state and the ledger: nothing has left, so today's reviewers count."""
    request = reviewed(vault)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    store = vault.house.desk.airlock.store
    found = store.find(request)
    assert found is not None
    assert store.change(replace(found, state="released", revision=found.revision + 1))
    rows = [(f"new-{who}", site, wage) for who, site, wage in PEOPLE]
    source = write_csv(tmp_path / "t.csv", ("who", "site", "wage"), rows)
    vault.add("town", source, card('version = "12"\n' + CARD.replace('"rita", ', "")))
    try:
        assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
        assert "not-dp-release" not in notes(vault, request)
    finally:
        vault.add("town", source, card('version = "13"\n' + CARD))
    call(vault, "owner", "release", request)
    assert "not-dp-release" in notes(vault, request)


def test_nothing_leaves_a_frozen_data_set(vault: OpenVault) -> None:
    request = reviewed(vault)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    vault.call("freeze", {"data_set": "town"})
    try:
        assert code_of(lambda: call(vault, "owner", "release", request)) == "data-set-frozen"
    finally:
        vault.call("thaw", {"data_set": "town"})
    call(vault, "owner", "release", request)


def test_who_is_none_of_its_people_finds_no_request(vault: OpenVault) -> None:
    request = submitted(vault)
    for verb in ("show", "fetch", "withdraw", "release", "run", "decline"):
        assert code_of(lambda verb=verb: call(vault, "ben", verb, request)) == "airlock-unknown"  # type: ignore[misc]  # bound at once
    assert of(vault, "ben").call("airlock", {"data_set": "town"}) == {"requests": []}
    assert code_of(lambda: call(vault, "rita", "run", request)) == "not-allowed"
    assert "files" not in call(vault, "rita", "show", request)
    call(vault, "ada", "withdraw", request)


def test_a_served_reviewer_on_no_record_lets_nothing_out(vault: OpenVault) -> None:
    request = submitted(vault)
    call(vault, "owner", "run", request)
    rita = Caller("rita", frozenset({"read", "ask"}), None, "t")
    with pytest.raises(Refused, match="does not say who let"):
        vault.house.desk.airlock.vote(rita, request, "release", ("s", 1), "")
    call(vault, "owner", "decline", request)


def test_a_token_for_programs_decides_nothing(vault: OpenVault) -> None:
    request = submitted(vault)
    desk = vault.house.desk
    token = Caller("owner", frozenset({"own", "read", "ask"}), None, "t", is_themselves=False)
    acts = (
        lambda: desk.airlock.run(token, request),
        lambda: desk.airlock.decline(token, request),
        lambda: desk.airlock.vote(token, request, "release", ("s", 1), ""),
        lambda: desk.airlock.release(token, request),
    )
    assert [code_of(act) for act in acts] == ["not-allowed"] * 4
    call(vault, "ada", "withdraw", request)


def test_a_card_that_says_nothing_lets_nothing_out(vault: OpenVault) -> None:
    body: dict[str, object] = {"data_set": "shut", "source": "1", "files": [FIGURE]}
    assert code_of(lambda: of(vault, "ada").call("submit-airlock", body)) == "airlock-closed"
    assert code_of(lambda: of(vault, "nobody").call("submit-airlock", body)) == "unknown-data-set"


def test_where_no_sandbox_starts_the_one_run_is_not_used_up(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = submitted(vault)

    def stopped(_limits: SandboxLimits, _own: str = "") -> None:
        raise SandboxStopped

    monkeypatch.setattr(vault.house.desk.airlock.door.programs.sandbox, "check", stopped)
    assert code_of(lambda: call(vault, "owner", "run", request)) == "sandbox-missing"
    assert call(vault, "ada", "show", request)["state"] == "waiting"
    call(vault, "ada", "withdraw", request)


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": []},
        {"files": [{"path": "../t.csv"}]},
        {"files": [{"path": "t.pkl"}]},
        {"files": [{"path": "t.html"}]},
        {"files": [FIGURE, FIGURE]},
        {"files": [{**GROUPED, "by": ["who"]}]},
        {"files": [{**GROUPED, "more": 1}]},
        {"columns": ["wages"]},
        {"columns": ["wage"], "files": [GROUPED]},  # by a column that it does not read
        {"cpu_s": 0},
        {"why": "\ud800"},
        {"files": [{**GROUPED, "count": "\ud800"}]},
        {"source": ""},
        {"source": "x = 1\r# \x1b[2K hidden"},
        {"files": [{"path": "Reviewers-only.txt"}]},
        {"files": [{"path": "reviewed-not-dp.json"}]},
    ],
    ids=ascii,
)
def test_what_is_not_well_declared_is_no_request(vault: OpenVault, wrong: Any) -> None:
    is_no_text = "\\ud800" in ascii(wrong)  # refused before its own reader, as over HTTP
    codes = ("bad-request",) if is_no_text else ("bad-airlock", "unknown-column")
    assert code_of(lambda: submitted(vault, **wrong)) in codes


# --- a second hostile reader ----------------------------------------------------------------------


def granted(vault: OpenVault, user: str) -> None:
    at = datetime.now(UTC).isoformat()
    vault.house.catalogue.grant(Grant("town", user, "researchers", "owner", at))


def test_an_author_whose_grant_is_taken_back_has_nothing_any_more(vault: OpenVault) -> None:
    granted(vault, "zoe")
    out, waits = (reviewed(vault, user="zoe") for _ in range(2))
    for request in (out, waits):
        for user in ("rita", "rolf"):
            vote(vault, request, user)
    call(vault, "owner", "release", out)
    assert call(vault, "zoe", "fetch", out)["state"] == "released"
    assert vault.house.catalogue.revoke("town", "zoe")
    for verb in ("fetch", "show", "withdraw"):
        assert code_of(lambda verb=verb: call(vault, "zoe", verb, out)) == "airlock-unknown"  # type: ignore[misc]  # bound at once
    assert code_of(lambda: of(vault, "zoe").call("airlock", {"data_set": "town"})) == (
        "unknown-data-set"
    )
    assert code_of(lambda: call(vault, "owner", "release", waits)) == "not-allowed"
    assert "not-dp-release" not in notes(vault, waits)
    granted(vault, "zoe")
    last = submitted(vault, user="zoe")
    assert vault.house.catalogue.revoke("town", "zoe")
    assert code_of(lambda: call(vault, "owner", "run", last)) == "not-allowed"
    for request in (waits, last):
        assert call(vault, "owner", "decline", request)["state"] == "declined"
    assert call(vault, "owner", "fetch", out)["state"] == "released"  # it has left


def test_a_reviewer_who_left_the_card_fetches_nothing(vault: OpenVault, tmp_path: Path) -> None:
    request = reviewed(vault)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    call(vault, "owner", "release", request)
    rows = [(f"new-{who}", site, wage) for who, site, wage in PEOPLE]
    source = write_csv(tmp_path / "t.csv", ("who", "site", "wage"), rows)
    vault.add("town", source, card('version = "22"\n' + CARD.replace('"rita", ', "")))
    try:
        assert code_of(lambda: call(vault, "rita", "fetch", request)) == "airlock-unknown"
        assert call(vault, "rolf", "fetch", request)["state"] == "released"
    finally:
        vault.add("town", source, card('version = "23"\n' + CARD))


def test_one_author_fills_no_place_of_another(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.enrol("max", "researchers")
    made = [submitted(vault, user="max") for _ in range(10)]
    assert code_of(lambda: submitted(vault, user="max")) == "too-many"
    call(vault, "ada", "withdraw", submitted(vault))
    call(vault, "max", "withdraw", made[0])
    made[0] = submitted(vault, user="max")
    assert code_of(lambda: submitted(vault, user="max")) == "too-many"
    monkeypatch.setitem(vault.house.desk.airlock.__dict__, "clock", Later())
    late = submitted(vault, user="max")  # the others are over by now, though nobody has looked
    monkeypatch.undo()
    for request in (*made, late):
        if call(vault, "owner", "show", request)["state"] == "waiting":
            call(vault, "max", "withdraw", request)


def test_an_author_sees_no_moment_of_a_run(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a run ends would say something of the rows: a program can wait for as long as it likes.

    So it is looked at from another process's place, while the program runs and afterwards.
    """
    request = submitted(vault)
    sandbox = vault.house.desk.airlock.door.programs.sandbox
    seen: list[object] = []
    ran = Bare.run_each

    def look() -> None:
        shown = call(vault, "ada", "show", request)
        listed = of(vault, "ada").call("airlock", {"data_set": "town"})
        refused = [code_and_text(lambda: call(vault, "ada", "fetch", request))]
        others: Any = listed["requests"]
        seen.append((shown, [one for one in others if one["request"] == request], refused))
        owner = call(vault, "owner", "show", request)["state"]
        states.append(owner)

    def run_each(job: BlockJob) -> None:
        look()
        ran(sandbox, job)  # type: ignore[arg-type]  # it is a bare one in these tests
        look()

    states: list[str] = []
    monkeypatch.setattr(sandbox, "run_each", run_each)
    call(vault, "owner", "run", request)
    look()
    assert states == ["running"] * 4 + ["in review"]  # those who may see it do
    assert all(one == seen[0] for one in seen)
    assert not any(person in str(seen) for person, _, _ in PEOPLE)
    call(vault, "ada", "withdraw", request)


def test_only_who_may_release_waits_for_whoever_is_at_a_request(vault: OpenVault) -> None:
    """Whoever waits until a run is over learns when that is, and keeps a thread of the house."""
    request = submitted(vault)
    store, files = vault.house.desk.airlock.store, vault.house.desk.airlock.door.files
    found = store.find(request)
    assert found is not None
    with files.holding(found.lock):  # as a run does
        begun = begin(found, "owner")
        assert store.change(begun)
        for user, code in (("ada", "not-allowed"), ("rita", "airlock-waits")):
            said = ended_soon(partial(call, vault, user, "release", request))
            assert said == code
    call(vault, "ada", "show", request)


def ended_soon(act: Callable[[], object]) -> str:
    """Return the code of the refusal, or that there was none while we hold the lock."""
    codes: list[str] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(act)), daemon=True)
    thread.start()
    thread.join(10)
    return codes[0] if codes else "it waits"


def code_and_text(act: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code, str(refused.value)


def test_a_request_that_was_killed_on_its_way_out_can_still_be_ended(vault: OpenVault) -> None:
    store = vault.house.desk.airlock.store
    for end, user in (("decline", "owner"), ("withdraw", "ada")):
        request = reviewed(vault)
        for one in ("rita", "rolf"):
            vote(vault, request, one)
        found = store.find(request)
        assert found is not None
        assert store.change(replace(found, state="released", revision=found.revision + 1))
        place = place_of(vault, request)
        assert call(vault, "rita", "show", request)["state"] == "in review"
        vote(vault, request, "rosa", "reject")
        assert code_of(lambda request=request: call(vault, "owner", "release", request)) == (  # type: ignore[misc]  # bound at once
            "airlock-waits"
        )
        call(vault, user, end, request)
        assert not place.exists()
        assert "not-dp-release" not in notes(vault, request)


def test_of_two_that_leave_in_one_moment_one_sees_the_other(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was reviewed beside nothing; together they show one person."""
    files = [{"path": "w.csv", "by": ["site"], "count": "n"}]
    program = SMALL.replace("/t.csv", "/w.csv").replace("north,50", "north,500")
    one, two = (reviewed(vault, program % n, files=files) for n in (230, 231))
    for request in (one, two):
        for user in ("rita", "rolf"):
            vote(vault, request, user)
    desk = vault.house.desk.airlock
    store, change = desk.store, desk.store.change

    def between(request: Any) -> bool:
        """Let the other out between the first's look at the past and its change of state."""
        monkeypatch.setattr(store, "change", change)
        call(vault, "rita", "release", two)
        return change(request)

    monkeypatch.setattr(store, "change", between)
    assert code_of(lambda: call(vault, "rita", "release", one)) == "airlock-changed"
    assert ("not-dp-release" in notes(vault, one), "not-dp-release" in notes(vault, two)) == (
        False,
        True,
    )
    assert code_of(lambda: call(vault, "ada", "fetch", one)) == "airlock-waits"
    assert "difference" in {f["check"] for f in call(vault, "rolf", "show", one)["findings"]}
    call(vault, "owner", "decline", one)


def test_a_second_release_of_one_request_is_the_same_entry(vault: OpenVault) -> None:
    request = reviewed(vault)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    call(vault, "rita", "release", request)
    assert code_of(lambda: call(vault, "rolf", "release", request)) == "airlock-waits"
    assert notes(vault, request).count("not-dp-release") == 1


def test_what_has_left_is_listed_among_the_releases_with_whose_word_it_was(
    vault: OpenVault,
) -> None:
    audit = vault.house.desk.audit
    charged = vault["town"].ask("SELECT COUNT(*) AS n FROM town", epsilon=0.125).receipt["seq"]
    request = reviewed(vault, SMALL % 50, files=[{"path": "t.csv"}], why="to be listed")
    for user in ("rita", "owner"):
        vote(vault, request, user)
    made = call(vault, "rita", "release", request)
    (listed,) = (one for one in made_by(vault, "owner") if one["request"] == request)
    found: Any = audit.releases(2**62, 2, "town")
    assert [one["entry"] for one in found["releases"]] == [made["receipt"]["seq"], charged]
    one = found["releases"][0]
    held = audit.ledger.store.entry(made["receipt"]["seq"])
    assert held is not None
    assert (one["user"], one["at"], one["epsilon"]) == ("ada", held.at, None)
    assert one["guarantee"] == "reviewed (not DP)"
    assert one["reviewed"] == {
        "request": request,
        "program": listed["digest"],
        "approved_by": ["owner", "rita"],
        "let_out_by": "rita",
        "files": made["receipt"]["files"],
    }
    assert (listed["state"], listed["ended_by"]) == ("released", "rita")
    assert sorted(vote["user"] for vote in listed["votes"]) == ["owner", "rita"]
    assert found["releases"][1]["reviewed"] is None
    audit_page: Any = audit.releases(found["next"], 1, "town")
    assert audit_page["releases"][0]["entry"] < charged
    assert audit.sheet(one["entry"])["files"] == made["receipt"]["files"]
    others: Any = audit.releases(2**62, 50, "shut")
    assert others["releases"] == []


def made_by(vault: OpenVault, user: str) -> Any:
    return of(vault, user).call("airlock", {"data_set": "town"})["requests"]


def test_more_reviewers_on_the_card_hold_what_has_its_votes_and_fewer_free_nothing(
    vault: OpenVault, tmp_path: Path
) -> None:
    request = reviewed(vault)
    for user in ("rita", "rolf"):
        vote(vault, request, user)
    rows = [(f"new-{who}", site, wage) for who, site, wage in PEOPLE]
    source = write_csv(tmp_path / "t.csv", ("who", "site", "wage"), rows)
    three = CARD.replace("smallest = 10", "smallest = 10\nneeded = 3")
    vault.add("town", source, card('version = "32"\n' + three))
    try:
        assert code_of(lambda: call(vault, "owner", "release", request)) == "airlock-waits"
        late = submitted(vault)  # handed in when three were needed
    finally:
        vault.add("town", source, card('version = "33"\n' + CARD))
    assert call(vault, "owner", "show", late)["needed"] == 3
    for one in (request, late):
        call(vault, "owner", "decline", one)


@pytest.mark.parametrize(
    "paths",
    [
        ("a.csv", "a.csv/b.csv"),
        ("A.csv", "a.csv"),
        ("A.CSV", "a.csv/b.csv"),
        ("reviewed-not-dp.json/b.csv",),
        ("Reviewers-Only.txt/b.csv",),
        ("/etc/a.csv",),
        ("a/../b.csv",),
        ("..csv",),
        ("a//b.csv",),
        ("a\\b.csv",),
        ("C:a.csv",),
        ("con.csv",),
        ("x/NUL.tar.txt",),
        ("x./b.csv",),
        ("a.csv.",),
        ("a.csv ",),
        ("ä.csv",),
        ("a\u202evsc.csv",),
        ("a.csv\n",),
        ("a" * 197 + ".csv",),
        ("a/" * 8 + "b.csv",),
        ("a.csv.gz",),
        ("a.csv\0.png",),
    ],
    ids=ascii,
)
def test_a_name_that_plays_a_trick_is_no_file(vault: OpenVault, paths: tuple[str, ...]) -> None:
    files = [{"path": path} for path in paths]
    is_no_text = any("\0" in path for path in paths)  # refused before its own reader
    code = "bad-request" if is_no_text else "bad-airlock"
    assert code_of(lambda: submitted(vault, files=files)) == code
