"""The verbs (API operations) of sign-in, access tokens and users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.access.schema import (
    ChangeUser,
    Invite,
    Invited,
    MakeToken,
    Me,
    OneToken,
    OneUser,
    Revoked,
    SignedOut,
    SignIn,
    TakeUp,
    Tokens,
    Users,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Empty, Token, User
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.access.service import Access
    from sfumato.vault.users import Caller

ACCESS_VERBS: Final = Verbs()


class Services(Protocol):
    """The service that the verbs (API operations) of access use."""

    @property
    def access(self) -> Access:
        """Return the service of users, access tokens and invitations."""
        ...


@ACCESS_VERBS.open_verb("sign-in", "POST", "/v1/sign-in", SignIn, Token)
def sign_in(services: Services, address: str, asked: SignIn) -> Json:
    """Start a session of twelve hours with a name and a password."""
    return services.access.sign_in(asked.user, asked.password, address, asked.device or "")


@ACCESS_VERBS.open_verb("take-up", "POST", "/v1/invitations", TakeUp, Token)
def take_up(services: Services, address: str, asked: TakeUp) -> Json:
    """Accept an invitation: set a password and start a session."""
    return services.access.take_up(asked.invitation, asked.password, address)


@ACCESS_VERBS.verb("sign-out", "POST", "/v1/sign-out", "any", Empty, SignedOut)
def sign_out(services: Services, caller: Caller, _asked: Empty) -> Json:
    """Revoke the token of this request."""
    return services.access.sign_out(caller)


@ACCESS_VERBS.verb("me", "GET", "/v1/me", "any", Empty, Me)
def me(services: Services, caller: Caller, _asked: Empty) -> Json:
    """Return your name, your roles and what your token permits."""
    return services.access.me(caller)


@ACCESS_VERBS.verb("tokens", "GET", "/v1/tokens", "any", Empty, Tokens)
def tokens(services: Services, caller: Caller, _asked: Empty) -> Json:
    """List your tokens, without their secrets, and who invited you and when."""
    return {
        "tokens": services.access.tokens(caller),
        "invitations": services.access.invitations(caller.user),
    }


@ACCESS_VERBS.verb("make-token", "POST", "/v1/tokens", "any", MakeToken, Token)
def make_token(services: Services, caller: Caller, asked: MakeToken) -> Json:
    """Create a token that permits no more than your own."""
    return services.access.make_token(
        caller,
        label=asked.label,
        actions=asked.actions,
        data_sets=asked.data_sets,
        days=asked.days,
    )


@ACCESS_VERBS.verb(
    "revoke-token", "DELETE", "/v1/tokens/{token}", "any", OneToken, Revoked,
    refusals=("unknown-token",),
)  # fmt: skip
def revoke_token(services: Services, caller: Caller, asked: OneToken) -> Json:
    """Revoke one of your access tokens."""
    return services.access.revoke(caller, asked.token)


@ACCESS_VERBS.verb("users", "GET", "/v1/users", "operate", Empty, Users)
def users(services: Services, _caller: Caller, _asked: Empty) -> Json:
    """List all users and their roles."""
    return {"users": services.access.users()}


@ACCESS_VERBS.verb(
    "invite", "POST", "/v1/users", "operate", Invite, Invited,
    refusals=("unknown-user", "ledger-frozen"),
)  # fmt: skip
def invite(services: Services, caller: Caller, asked: Invite) -> Json:
    """Add a user, or invite a known user again."""
    return services.access.invite(caller, asked.user, asked.roles)


@ACCESS_VERBS.verb(
    "change-user", "PUT", "/v1/users/{user}", "operate", ChangeUser, User,
    refusals=("unknown-user",),
)  # fmt: skip
def change_user(services: Services, caller: Caller, asked: ChangeUser) -> Json:
    """Change a user's roles, and block or unblock the user."""
    return services.access.change(caller, asked.user, asked.roles, asked.blocked)


@ACCESS_VERBS.verb(
    "revoke-tokens", "DELETE", "/v1/users/{user}/tokens", "any", OneUser, Revoked,
    refusals=("unknown-user",),
)  # fmt: skip
def revoke_tokens(services: Services, caller: Caller, asked: OneUser) -> Json:
    """Revoke all access tokens of a user."""
    return services.access.revoke_all(caller, asked.user)
