"""The access service: users, tokens and invitations; the ledger records every change of rights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.access.secret_tokens import make_secret_text, token_digest
from sfumato.features.access.sign_in_limits import Attempts, device_proof, is_known_device
from sfumato.features.access.token_admission import Admission, not_signed_in
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ports import Clock
from sfumato.vault.service_ports import AccessStore, Passwords
from sfumato.vault.users import ACTIONS, ROLES, Caller, Token, User

OWNER: Final = "owner"  # the first owner's name
SESSION: Final = timedelta(hours=12)
INVITATION: Final = timedelta(days=7)
LONGEST: Final = timedelta(days=90)
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 200
MAX_TOKENS: Final = 100  # valid tokens of one user
MAX_INVITATIONS: Final = 50  # the newest, which are shown
_INVITED_BY: Final = "invited by "
# the inviter's name in the ledger if the administrator invites in the folder, without a token
FOLDER: Final = "the vault's folder"


@dataclass(frozen=True)
class _Opens:
    """The terms of a new token: kind, label, permitted actions and data sets, and lifetime."""

    kind: str
    label: str
    actions: tuple[str, ...]
    data_sets: frozenset[str] | None
    age: timedelta


@dataclass(frozen=True)
class Access:
    """Manages the users, access tokens and invitations of one vault."""

    store: AccessStore
    ledger: Ledger
    passwords: Passwords
    dice: RandomSource
    clock: Clock
    admission: Admission
    attempts: Attempts = field(default_factory=Attempts)

    def sign_in(self, name: str, password: str, place: str, device: str = "") -> Json:
        """Sign a user in by name and password; return a session.

        An unknown name takes as long as a known one and gets the same refusal, so nobody learns
        which names exist.

        Args:
            name: The user's name.
            password: The user's password.
            place: The IP address of the client.
            device: The `device` proof that the last session returned; "" if the client has none.
        """
        user = self.store.user(name)
        hashed = user.password if user is not None else ""
        known = device if is_known_device(name, hashed, device) else ""
        with self.attempts.trying(place, name, known):
            is_right = self.passwords.check(hashed, password[: LONGEST_PASSWORD + 1])
            now = self.store.user(name)  # a check is slow: the user may be blocked meanwhile
            if now is None or not is_right or now.is_blocked or now.password != hashed:
                self._note_failed("" if user is None else name)
                raise Refused(
                    "not-signed-in",
                    "The name or the password is wrong.",
                    "Try again, or ask an operator of the service for a new invitation.",
                )
        return self._session(now)

    def _note_failed(self, user: str) -> None:
        """Count a failed sign-in, and write the counts into the ledger at most once in ten minutes.

        The limit prevents an attacker from flooding the ledger.
        """
        due = self.attempts.failed(user)
        if due is not None:
            unknown = due.pop("", 0)
            self.ledger.note("sign-ins-failed", {"users": dict(due), "unknown_names": unknown})

    def take_up(self, invitation: str, password: str, place: str) -> Json:
        """Accept an invitation, once: set the invited user's password, and sign them in."""
        with self.attempts.trying(place, token_digest(invitation) or "no invitation"):
            token = self._found(invitation)
            user = None if token is None else self.store.user(token.user)
            if token is None or user is None or not self._is_open(token) or user.is_blocked:
                raise Refused(
                    "not-signed-in",
                    "The invitation link is wrong, too old, or already used.",
                    "Ask an operator of the service for a new invitation.",
                )
        _check_password(password)
        hashed = self.passwords.hash(password)  # slow: the user may be blocked meanwhile
        if not self.store.take_token(token.id, self.clock.now()):
            raise not_signed_in()
        self._end_tokens(user.name)
        self.ledger.note("password-set", {"user": user.name})
        changed = self.store.set_password(user.name, hashed)
        self._end_tokens(user.name)  # again: a session by the old password may be new
        self.admission.forget()
        if changed is None:
            raise not_signed_in()
        return self._session(changed)

    def sign_out(self, caller: Caller) -> Json:
        """Sign the caller out: revoke the caller's token."""
        self.store.revoke_token(caller.token, self.clock.now())
        self.admission.forget()
        return {"signed_out": True}

    def me(self, caller: Caller) -> Json:
        """Return the caller's name, roles, and what their token permits."""
        user = self.store.user(caller.user)
        return {
            "user": caller.user,
            "roles": [] if user is None else list(user.roles),
            "actions": [action for action in ACTIONS if caller.may(action)],
            "data_sets": None if caller.data_sets is None else sorted(caller.data_sets),
        }

    def users(self) -> list[Json]:
        """Return all users of the service, with their roles."""
        return [_user_json(user) for user in self.store.users()]

    def invite(self, caller: Caller, name: str, roles: Sequence[str]) -> Json:
        """Invite a new user with these roles, or a known user again; the link is valid once."""
        _check_themselves(caller)
        _check_name(name)
        unknown = sorted(set(roles) - set(ROLES))
        if unknown or not roles:
            raise Refused(
                "bad-request",
                "A user needs at least one role.",
                f"Give one or more of the roles {', '.join(ROLES)}.",
            )
        known = self.store.user(name)
        made = tuple(role for role in ROLES if role in roles)
        if known is not None and known.roles != made:
            raise Refused(
                "not-allowed",
                f"The user {name!r} exists with other roles.",
                "Change the roles of this user first, or choose another name.",
            )
        if known is not None and known.password and "owner" in known.roles and caller.token:
            raise Refused(
                "not-allowed",
                "An owner who has joined can be invited again only in the vault's folder.",
                f"Run there: sfumato invite {name} --role owner --vault DIR",
            )
        by = caller.user if caller.token else FOLDER
        if known is None:
            self.ledger.note("user-added", {"user": name, "roles": list(made), "by": by})
            if not self.store.add_user(User(name, made, self.clock.now())):
                return self.invite(caller, name, roles)  # added meanwhile: invite as known
        return self._invitation(name, by=by)

    def change(self, caller: Caller, name: str, roles: Sequence[str], is_blocked: bool) -> Json:
        """Change a user's roles, and block or unblock them."""
        _check_themselves(caller)
        user = self._known(name)
        if name == caller.user:
            raise Refused(
                "not-allowed",
                "You cannot change your own roles.",
                "Ask another operator to change them.",
            )
        if set(roles) - set(ROLES) or not roles:
            raise Refused(
                "bad-request",
                "A user needs at least one role.",
                f"Give one or more of the roles {', '.join(ROLES)}.",
            )
        made = tuple(role for role in ROLES if role in roles)
        if is_blocked:  # first, so that the user is out even if the ledger refuses the entry
            self.store.block_user(name)
            self.admission.forget()
        self.ledger.note(
            "user-changed",
            {
                "user": name,
                "roles": list(made),
                "blocked": is_blocked,
                "by": caller.user if caller.token else FOLDER,
            },
        )
        changed = self.store.change_user(name, made, is_blocked) or user
        self.admission.forget()
        return _user_json(changed)

    def owner_link(self) -> str | None:
        """Return a new invitation for the first owner; None if they have a password already."""
        owner = self.store.user(OWNER)
        if owner is not None and owner.password:
            return None
        if owner is None:
            self.store.add_user(User(OWNER, ("owner", "operator"), self.clock.now()))
        for token in self.store.tokens(OWNER):
            self.store.revoke_token(token.id, self.clock.now())
        return str(self._invitation(OWNER, by="the first start")["invitation"])

    def tokens(self, caller: Caller) -> list[Json]:
        """Return the caller's own valid access tokens and sessions, without their secrets."""
        return [
            _token_json(token)
            for token in self.store.tokens(caller.user)
            if token.kind != "invite" and self._is_open(token)
        ]

    def invitations(self, user: str) -> list[Json]:
        """Return who has invited the user and when, newest first, without secrets.

        The user should see an invitation that they didn't ask for: with it, somebody else could
        sign in as them.
        """
        found = [token for token in self.store.tokens(user) if token.kind == "invite"]
        return [
            {
                "id": token.id,
                "by": token.label.removeprefix(_INVITED_BY),
                "made": token.created,
                "until": token.revoked or token.expires,
                "is_open": self._is_open(token),
            }
            for token in found[:MAX_INVITATIONS]
        ]

    def make_token(
        self,
        caller: Caller,
        *,
        label: str,
        actions: Sequence[str] | None,
        data_sets: Sequence[str] | None,
        days: int,
    ) -> Json:
        """Make an access token for the caller, which permits no more than their current one."""
        _check_themselves(caller)
        wanted = [a for a in ACTIONS if caller.may(a) and (actions is None or a in actions)]
        if actions is not None and set(actions) - set(wanted):
            raise Refused(
                "not-allowed",
                "A token cannot have more rights than you have.",
                "Leave out the rights that you do not have.",
            )
        reach = caller.data_sets if data_sets is None else frozenset(map(str.casefold, data_sets))
        if reach is not None and not all(map(caller.reaches, reach)):
            raise Refused(
                "not-allowed",
                "A token cannot have more rights than you have.",
                "Leave out the rights that you do not have.",
            )
        if not 1 <= len(label) <= 100 or not label.isprintable():
            raise Refused(
                "bad-request",
                "The label of an access token must be 1 to 100 printable characters.",
                'Give a label that says what the token is for, such as "notebook".',
            )
        self._check_room(caller)
        age = min(timedelta(days=days), LONGEST)
        return self._made(caller.user, _Opens("token", label, tuple(wanted), reach, age))

    def _check_room(self, caller: Caller) -> None:
        """Refuse a new access token if the caller has 100 valid ones (MAX_TOKENS)."""
        held = [t for t in self.store.tokens(caller.user) if self._is_open(t)]
        if sum(token.kind == "token" for token in held) >= MAX_TOKENS:
            raise Refused(
                "too-many",
                f"You have {MAX_TOKENS} access tokens already, which is the maximum.",
                "Revoke tokens that you no longer use (page Tokens, or DELETE /v1/tokens/TOKEN).",
            )

    def revoke(self, caller: Caller, token: str) -> Json:
        """Revoke one of the caller's access tokens, on every node within 5 s."""
        if token not in {one.id for one in self.store.tokens(caller.user)}:
            raise Refused(
                "unknown-token",
                "You have no access token with this id.",
                "Take the id from the list of your tokens (page Tokens, or GET /v1/tokens).",
            )
        if self.store.take_token(token, self.clock.now()):
            self.ledger.note("token-revoked", {"user": caller.user, "token": token})
        self.admission.forget()
        return {"revoked": token}

    def revoke_all(self, caller: Caller, name: str) -> Json:
        """Revoke all of a user's tokens, sessions and invitations, as after a lost device."""
        _check_themselves(caller)
        if name != caller.user and not caller.may("operate"):
            raise Refused(
                "not-allowed",
                "Only operators may revoke the tokens of another user.",
                "Ask an operator to revoke them.",
            )
        self._known(name)
        self._end_tokens(name)
        self.ledger.note("tokens-revoked", {"user": name, "by": caller.user})
        self.admission.forget()
        return {"revoked": name}

    def _known(self, name: str) -> User:
        user = self.store.user(name)
        if user is None:
            raise Refused(
                "unknown-user",
                f"There is no user {name!r}.",
                "Take the name from the list of users (page People, or GET /v1/users).",
            )
        return user

    def _end_tokens(self, name: str) -> None:
        for token in self.store.tokens(name):
            if not token.revoked:
                self.store.revoke_token(token.id, self.clock.now())

    def _found(self, invitation: str) -> Token | None:
        digest = token_digest(invitation)
        token = None if digest is None else self.store.token(digest)
        return token if token is not None and token.kind == "invite" else None

    def _is_open(self, token: Token) -> bool:
        now = datetime.fromisoformat(self.clock.now())
        return not token.revoked and datetime.fromisoformat(token.expires) > now

    def _session(self, user: User) -> Json:
        actions = tuple(action for action in ACTIONS if action in user.actions)
        made = self._made(user.name, _Opens("session", "signed in", actions, None, SESSION))
        return {
            **made,
            "roles": list(user.roles),
            "invitations": self.invitations(user.name),
            "device": device_proof(user.name, user.password),
        }

    def _invitation(self, name: str, *, by: str) -> Json:
        self.ledger.note("user-invited", {"user": name, "by": by})
        made = self._made(name, _Opens("invite", f"{_INVITED_BY}{by}", (), None, INVITATION))
        return {"user": name, "invitation": made["token"], "expires": made["expires"]}

    def _made(self, user: str, opens: _Opens) -> Json:
        """Make and store a new access token; only this result contains its secret."""
        text = make_secret_text(self.dice)
        now = datetime.fromisoformat(self.clock.now())
        token = Token(
            id=self.dice.draw(8).hex(),
            user=user,
            kind=opens.kind,
            label=opens.label,
            digest=token_digest(text) or "",
            actions=opens.actions,
            data_sets=None if opens.data_sets is None else tuple(sorted(opens.data_sets)),
            created=now.isoformat(),
            expires=(now + opens.age).isoformat(),
        )
        self.store.add_token(token)
        if opens.kind != "session":
            said = {k: v for k, v in _token_json(token).items() if k != "label"}
            self.ledger.note("token-made", {"user": user, **said})
        return {"token": text, "user": user, **_token_json(token)}


def _token_json(token: Token) -> Json:
    return {
        "id": token.id,
        "kind": token.kind,
        "label": token.label,
        "actions": list(token.actions),
        "data_sets": None if token.data_sets is None else list(token.data_sets),
        "created": token.created,
        "expires": token.expires,
    }


def _user_json(user: User) -> Json:
    return {
        "user": user.name,
        "roles": list(user.roles),
        "created": user.created,
        "blocked": user.is_blocked,
        "has_signed_in": bool(user.password),
    }


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= 100 or not name.isprintable() or "/" in name or name != name.strip():
        raise Refused(
            "unknown-user",
            "A user's name must be 1 to 100 printable characters without '/'.",
            "Choose another name.",
        )


def _check_themselves(caller: Caller) -> None:
    """Refuse API tokens: only users who have signed in themselves may manage users and tokens."""
    if not caller.is_themselves:
        raise Refused(
            "not-allowed",
            "An access token for programs cannot create tokens or users.",
            "Sign in with your password, and create them in that session.",
        )


def _check_password(password: str) -> None:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise Refused(
            "bad-request",
            f"A password must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.",
            "Choose another password. Four unrelated words make a good one.",
        )
