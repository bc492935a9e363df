"""Requests and replies of sign-in, access tokens and users."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sfumato.wire.schema import Label, Name, Reply, Request, Token, User, items, letters

Password = Annotated[str, letters(400)]
Roles = Annotated[list[Name], items(10)]


class SignIn(Request, frozen=True, kw_only=True):
    """A request to sign in: a user's name and password."""

    user: Name
    password: Password
    device: Annotated[
        str | None,
        letters(64, "The `device` of your last session here: a known device."),
    ] = None


class TakeUp(Request, frozen=True, kw_only=True):
    """A request to accept an invitation, with the password that the user chooses."""

    invitation: Name
    password: Password


class MakeToken(Request, frozen=True, kw_only=True):
    """A request for a new access token: label, rights, data sets and lifetime."""

    label: Label
    actions: Annotated[list[Name], items(10)] | None = None
    data_sets: Annotated[list[Name], items(1000)] | None = None
    days: Annotated[int, Meta(ge=1, le=90)] = 30


class OneToken(Request, frozen=True, kw_only=True):
    """A request about one access token, by its id."""

    token: Name


class Invite(Request, frozen=True, kw_only=True):
    """A request to add a user, or to invite them again, with their roles."""

    user: Label
    roles: Roles


class ChangeUser(Request, frozen=True, kw_only=True):
    """A request to change a user's roles, and whether they are blocked."""

    user: Name
    roles: Roles
    blocked: bool


class OneUser(Request, frozen=True, kw_only=True):
    """A request about one user, by their name."""

    user: Name


class SignedOut(Reply):
    """The reply to a sign-out: the session has ended."""

    signed_out: bool


class Me(Reply):
    """A reply with the caller's own name, roles and permitted actions."""

    user: Name
    roles: list[Name]
    actions: list[Name]
    data_sets: Annotated[
        list[Name] | None, Meta(description="The data sets of the token; null: all.")
    ] = None


class Tokens(Reply):
    """The caller's access tokens, and the invitations that the caller got."""

    tokens: list[Token]
    invitations: list[dict[str, Any]]


class Revoked(Reply):
    """The token that was revoked, or the user whose tokens were."""

    revoked: Any


class Users(Reply):
    """All users of the service, with their roles."""

    users: list[User]


class Invited(Reply):
    """An invitation for a user; its secret is shown once."""

    user: Name
    invitation: Name
    expires: Name
