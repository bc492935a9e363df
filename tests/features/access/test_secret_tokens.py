"""What a token can and cannot make of itself, and what the ledger knows of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.features.access.service import MAX_TOKENS, Access
from sfumato.features.access.token_admission import REMEMBERED_S
from sfumato.server.ipc.call_metrics import CallMetrics, to_nowhere
from sfumato.server.ipc.door_server import DoorEnd, _Known
from sfumato.server.ipc.edge_client import Answered
from sfumato.server.ipc.ipc_frames import Frame
from sfumato.server.ipc.server_sent_events import OF_ONE_USER, check_listeners, send_state_events
from sfumato.vault.users import Caller
from support.ledger_stores import SetClock
from support.small_vaults import make_vault

PASSWORD = "soft edges, no outline"  # noqa: S105  # of nobody but these tests


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return an open vault without data sets."""
    with sfumato.open(make_vault(tmp_path)) as opened:
        yield opened


def signed_in(access: Access) -> Caller:
    """Return ada with the session of her password."""
    operator = Caller("otto", frozenset({"operate"}), None, "t")
    invitation = access.invite(operator, "ada", ["researcher"])["invitation"]
    session = access.take_up(str(invitation), PASSWORD, "here")
    return access.admission.caller(str(session["token"]))


def made(access: Access, caller: Caller, days: int = 90) -> dict[str, object]:
    return access.make_token(caller, label="x", actions=None, data_sets=None, days=days)


def test_a_user_has_so_many_tokens_and_no_more(vault: OpenVault) -> None:
    access = vault.house.desk.access
    ada = signed_in(access)
    ids = [made(access, ada)["id"] for _ in range(MAX_TOKENS)]
    with pytest.raises(Refused) as refused:
        made(access, ada)
    assert refused.value.code == "too-many"
    access.revoke(ada, str(ids[0]))
    made(access, ada)


def test_the_ledger_knows_who_invited_whom_before_they_come(vault: OpenVault) -> None:
    access = vault.house.desk.access
    signed_in(access)
    notes = [str(entry) for entry in vault.house.ledger.store.entries()]
    kinds = [kind for kind in ("user-added", "user-invited", "token-made", "password-set")
             if any(kind in note for note in notes)]  # fmt: skip
    assert kinds == ["user-added", "user-invited", "token-made", "password-set"]
    assert any("user-invited" in note and "otto" in note for note in notes)


def test_whoever_was_invited_anew_sees_by_whom_and_can_revoke_what_is_open(
    vault: OpenVault,
) -> None:
    """An operator who takes up the invitation themselves is ada; she sees it when she is back."""
    access, otto = vault.house.desk.access, Caller("otto", frozenset({"operate"}), None, "t")
    signed_in(access)
    stolen = access.invite(otto, "ada", ["researcher"])["invitation"]
    as_ada = access.take_up(str(stolen), "another pass word", "there")
    back = access.invite(Caller("pia", otto.actions, None, "t"), "ada", ["researcher"])[
        "invitation"
    ]
    shown: Any = access.take_up(str(back), PASSWORD, "here")["invitations"]
    assert [one["by"] for one in shown] == ["pia", "otto", "otto"]
    assert not any(one["is_open"] for one in shown)
    with pytest.raises(Refused):
        access.admission.caller(str(as_ada["token"]))
    late = access.invite(otto, "ada", ["researcher"])["invitation"]
    ada: Any = access.sign_in("ada", PASSWORD, "here")
    newest = ada["invitations"][0]
    assert (newest["by"], newest["is_open"]) == ("otto", True)
    assert str(late) not in str(ada["invitations"])
    access.revoke(access.admission.caller(str(ada["token"])), str(newest["id"]))
    with pytest.raises(Refused):
        access.take_up(str(late), PASSWORD, "there")


def test_without_a_record_there_is_no_user(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = vault.house.desk.access

    def refuse(*_: object) -> None:
        raise Refused("ledger-unavailable", "no space", "make some")

    monkeypatch.setattr(type(access.ledger), "note", refuse)
    with pytest.raises(Refused):
        access.invite(Caller("otto", frozenset({"operate"}), None, "t"), "ada", ["owner"])
    assert access.store.user("ada") is None


def test_whoever_is_recalled_was_let_in_just_now_and_is_not_after_a_revocation(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = vault.house.desk.access
    ada = signed_in(access)
    token = made(access, ada)
    text = str(token["token"])
    assert access.admission.cached_caller(text) is None  # it was never looked up
    assert access.admission.cached_caller("no token at all") is None
    caller = access.admission.caller(text)
    assert access.admission.cached_caller(text) == caller
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + REMEMBERED_S + 0.1)
    assert (
        access.admission.cached_caller(text) is None
    )  # too long ago for another node's revocation
    monkeypatch.undo()
    assert access.admission.cached_caller(text) == caller
    access.revoke(ada, str(token["id"]))
    assert access.admission.cached_caller(text) is None


def test_a_token_that_has_become_old_is_not_recalled(vault: OpenVault) -> None:
    access = vault.house.desk.access
    ada = signed_in(access)
    text = str(made(access, ada, days=1)["token"])
    access.admission.caller(text)
    late = SetClock((datetime.now(UTC) + timedelta(days=2)).isoformat())
    object.__setattr__(access.admission, "_clock", late)
    assert access.admission.cached_caller(text) is None


def test_a_session_ends_after_twelve_hours_and_a_token_after_ninety_days(
    vault: OpenVault,
) -> None:
    access = vault.house.desk.access
    ada = signed_in(access)
    session: Any = access.sign_in("ada", PASSWORD, "there")
    token: Any = made(access, ada, days=400)
    for one, age in ((session, timedelta(hours=12)), (token, timedelta(days=90))):
        begun = datetime.fromisoformat(one["created"])
        for after, is_open in ((age - timedelta(seconds=1), True), (age, False)):
            clock = SetClock((begun + after).isoformat())
            object.__setattr__(access.admission, "_clock", clock)
            assert _opens(access, one["token"]) == is_open, (age, after)


def _opens(access: Access, token: str) -> bool:
    try:
        access.admission.caller(token)
    except Refused:
        return False
    return True


def test_whoever_is_blocked_is_out_though_the_record_is_broken(vault: OpenVault) -> None:
    access = vault.house.desk.access
    text = str(made(access, signed_in(access))["token"])
    (vault.house.folder.parent / "anchors" / "anchor").unlink()
    with pytest.raises(Refused) as refused:
        access.change(
            Caller("otto", frozenset({"operate"}), None, "t"), "ada", ["researcher"], True
        )
    assert refused.value.code == "anchor-missing"
    with pytest.raises(Refused) as refused:
        access.admission.caller(text)
    assert refused.value.code == "not-signed-in"


def test_who_listens_at_once_is_no_more_than_one_after_another() -> None:
    """Each was one of few when they were let in; they are counted again when they are told."""

    async def run() -> list[int]:
        async def look() -> Answered:
            return Answered(None, b'{"state": "waiting"}', "ada")

        first = await look()
        several = [send_state_events(first, look) for _ in range(OF_ONE_USER + 5)]
        heard = [[one async for one in _some(stream)] for stream in several]
        for stream in several:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        return [len(one) for one in heard]

    assert asyncio.run(run()) == [1] * OF_ONE_USER + [0] * 5
    check_listeners("ada")  # all have gone


async def _some(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the first of the stream, which stays open."""
    found = await anext(stream, None)
    if found is not None:
        yield found


def test_a_long_look_of_an_auditors_holds_up_nobody_quick(vault: OpenVault) -> None:
    """Whoever has the whole chain verified, again and again, takes no thread of the quick."""
    access = vault.house.desk.access
    vera = access.invite(Caller("otto", frozenset({"operate"}), None, "t"), "vera", ["auditor"])
    token = access.take_up(str(vera["invitation"]), PASSWORD, "here")["token"]
    end = DoorEnd(vault.house.desk, quantum_s=0, tally=CallMetrics(to_nowhere))
    call = {"verb": "verify-ledger", "token": token, "place": "here", "params": {}}

    async def run() -> tuple[bool, str]:
        async with end._heavy_turns.turn("vera"):
            looks = asyncio.create_task(end._done(Frame(call), _Known()))
            done, _ = await asyncio.wait([looks], timeout=0.5)
        return bool(done), await looks

    is_over, verdict = asyncio.run(run())
    assert not is_over
    assert '"ok": true' in verdict


@pytest.mark.parametrize("verb", ["amend", "begin", "price"])
def test_a_token_that_is_revoked_while_its_bearer_waits_opens_nothing(
    vault: OpenVault, verb: str
) -> None:
    access = vault.house.desk.access
    ada = signed_in(access)
    token = made(access, ada)
    end = DoorEnd(vault.house.desk, quantum_s=0, tally=CallMetrics(to_nowhere))
    params = {"data_set": "none"} if verb == "amend" else {}
    call = {"verb": verb, "token": token["token"], "place": "here", "params": params}

    async def run() -> str:
        async with end._heavy_turns.turn("ada"):
            waits = asyncio.create_task(end._done(Frame(call), _Known()))
            while not end._heavy_turns._queue:
                await asyncio.sleep(0.01)
            access.revoke(ada, str(token["id"]))
        with pytest.raises(Refused) as refused:
            await waits
        return refused.value.code

    assert asyncio.run(run()) == "not-signed-in"


def test_who_is_blocked_while_they_come_in_stays_blocked(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing a password takes a while; an operator who blocks them meanwhile is obeyed."""
    access, otto = vault.house.desk.access, Caller("otto", frozenset({"operate"}), None, "t")
    invitation = access.invite(otto, "ada", ["researcher"])["invitation"]
    whole = access.passwords.hash

    def meanwhile(password: str) -> str:
        access.change(otto, "ada", ["auditor"], is_blocked=True)
        return whole(password)

    monkeypatch.setattr(access.passwords, "hash", meanwhile)
    with pytest.raises(Refused) as refused:
        access.take_up(str(invitation), PASSWORD, "here")
    assert refused.value.code == "not-signed-in"
    (ada,) = [user for user in access.users() if user["user"] == "ada"]
    assert (ada["blocked"], ada["roles"], ada["has_signed_in"]) == (True, ["auditor"], False)


@pytest.mark.parametrize("is_blocked", [True, False])
def test_a_change_of_roles_leaves_the_password_that_was_set_meanwhile(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch, is_blocked: bool
) -> None:
    """Else the password that somebody has replaced, since others knew it, would open again."""
    access, otto = vault.house.desk.access, Caller("otto", frozenset({"operate"}), None, "t")
    signed_in(access)
    invitation = str(access.invite(otto, "ada", ["researcher"])["invitation"])
    known, new = access.store.user, "another pass word"

    def then_replaced(name: str) -> Any:
        found = known(name)
        monkeypatch.undo()
        access.take_up(invitation, new, "there")
        return found

    monkeypatch.setattr(access.store, "user", then_replaced)
    access.change(otto, "ada", ["researcher"], is_blocked=is_blocked)
    if is_blocked:
        access.change(otto, "ada", ["researcher"], is_blocked=False)
    with pytest.raises(Refused):
        access.sign_in("ada", PASSWORD, "elsewhere")
    assert access.sign_in("ada", new, "elsewhere")["user"] == "ada"


def test_who_signs_out_is_out_at_once(vault: OpenVault) -> None:
    access = vault.house.desk.access
    operator = Caller("otto", frozenset({"operate"}), None, "t")
    invitation = access.invite(operator, "ada", ["researcher"])["invitation"]
    text = str(access.take_up(str(invitation), PASSWORD, "here")["token"])
    caller = access.admission.caller(text)
    assert access.admission.cached_caller(text) == caller
    access.sign_out(caller)
    assert access.admission.cached_caller(text) is None  # not only once the memory of it has faded
    with pytest.raises(Refused, match="not-signed-in"):
        access.admission.caller(text)
