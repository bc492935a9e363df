"""A password takes long to hash and to check; what is decided of its user meanwhile stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.features.access.service import Access
from sfumato.vault.service_ports import Passwords
from sfumato.vault.users import Caller
from support.small_vaults import make_vault

PASSWORD, OTHER = "soft edges, no outline", "another pass word"
OTTO = Caller("otto", frozenset({"operate"}))


@dataclass
class Slow:
    """Real passwords, which somebody does something beside, once."""

    real: Passwords
    meanwhile: Callable[[], object]

    def hash(self, password: str) -> str:
        self._once()
        return self.real.hash(password)

    def check(self, hashed: str, password: str) -> bool:
        self._once()
        return self.real.check(hashed, password)

    def _once(self) -> None:
        done, self.meanwhile = self.meanwhile, list
        done()


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    """Return the users of an empty vault."""
    with sfumato.open(make_vault(tmp_path)) as opened:
        assert isinstance(opened, OpenVault)
        yield opened.house.desk.access


def slowed(access: Access, meanwhile: Callable[[], object]) -> Access:
    return replace(access, passwords=Slow(access.passwords, meanwhile))


def invited(access: Access, *roles: str) -> str:
    return str(access.invite(OTTO, "ada", list(roles))["invitation"])


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refusal:
        act()
    return refusal.value.code


def test_who_is_blocked_while_they_take_up_an_invitation_stays_out(access: Access) -> None:
    invitation = invited(access, "operator")
    busy = slowed(access, lambda: access.change(OTTO, "ada", ["auditor"], True))
    assert refused(lambda: busy.take_up(invitation, PASSWORD, "here")) == "not-signed-in"
    ada = access.store.user("ada")
    assert ada is not None
    assert (ada.is_blocked, ada.roles) == (True, ("auditor",))
    assert refused(lambda: access.sign_in("ada", PASSWORD, "here")) == "not-signed-in"


def test_whose_roles_are_taken_while_they_take_up_an_invitation_is_let_in_without(
    access: Access,
) -> None:
    invitation = invited(access, "researcher", "operator")
    busy = slowed(access, lambda: access.change(OTTO, "ada", ["researcher"], False))
    session = busy.take_up(invitation, PASSWORD, "here")
    assert not access.admission.caller(str(session["token"])).may("operate")


def test_a_password_stands_whatever_is_changed_of_its_user_beside_it(access: Access) -> None:
    """An operator who had looked before would put the old one back, which somebody may know."""
    access.take_up(invited(access, "researcher"), OTHER, "here")
    again = invited(access, "researcher")
    before = access.store.user("ada")
    access.take_up(again, PASSWORD, "here")
    assert before is not None
    access.store.change_user(before.name, before.roles, is_blocked=False)
    assert refused(lambda: access.sign_in("ada", OTHER, "here")) == "not-signed-in"
    assert access.sign_in("ada", PASSWORD, "here")["token"]


def test_an_old_password_opens_nothing_once_it_is_changed_though_it_was_looked_at_before(
    access: Access,
) -> None:
    access.take_up(invited(access, "researcher"), OTHER, "here")
    again = invited(access, "researcher")
    thief = slowed(access, lambda: access.take_up(again, PASSWORD, "here"))
    assert refused(lambda: thief.sign_in("ada", OTHER, "there")) == "not-signed-in"


def test_a_session_of_the_old_password_ends_though_it_began_while_the_new_one_was_hashed(
    access: Access,
) -> None:
    access.take_up(invited(access, "researcher"), OTHER, "here")
    again, stolen = invited(access, "researcher"), []
    busy = slowed(access, lambda: stolen.append(access.sign_in("ada", OTHER, "there")))
    busy.take_up(again, PASSWORD, "here")
    assert refused(lambda: access.admission.caller(str(stolen[0]["token"]))) == "not-signed-in"


def test_a_name_is_added_once_and_whoever_is_second_changes_nothing(access: Access) -> None:
    access.take_up(invited(access, "researcher"), PASSWORD, "here")
    ada = access.store.user("ada")
    assert ada is not None
    assert not access.store.add_user(replace(ada, roles=("operator",), password=""))
    assert access.store.user("ada") == ada


def test_nobody_who_is_not_there_is_changed(access: Access) -> None:
    store = access.store
    assert store.set_password("nobody", "x") is None
    assert store.block_user("nobody") is None
    assert store.change_user("nobody", ("owner",), is_blocked=False) is None
    assert store.user("nobody") is None
