"""Who may come in: users, their roles, passwords, tokens and invitations."""

from sfumato.core.access import ACTIONS, ROLES, Caller, User
from sfumato.services.access.access import OWNER, Access
from sfumato.services.access.admission import Admission
from sfumato.services.access.secrets import token_digest

__all__ = [
    "ACTIONS",
    "OWNER",
    "ROLES",
    "Access",
    "Admission",
    "Caller",
    "User",
    "token_digest",
]
