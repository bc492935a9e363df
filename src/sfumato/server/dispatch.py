"""Dispatch verbs (API operations) to services: authenticate, authorise, then execute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.dp.refusal import Bug, Refused
from sfumato.wire.query_json import Json
from sfumato.wire.verb_table import BY_NAME

if TYPE_CHECKING:
    from sfumato.features.access.service import Access
    from sfumato.features.airlock.service import Airlock
    from sfumato.features.audit.service import Audit
    from sfumato.features.data_sets.add_service import AddJobs
    from sfumato.features.data_sets.connection_service import Connections
    from sfumato.features.data_sets.folder_upload_service import FolderUploads
    from sfumato.features.data_sets.service import DataSets
    from sfumato.features.data_sets.upload_service import Uploads
    from sfumato.features.federated.service import SiteService
    from sfumato.features.health.service import Readiness
    from sfumato.features.jobs.service import Jobs
    from sfumato.features.pipelines.service import Pipelines
    from sfumato.features.policy.caps_service import Caps
    from sfumato.features.policy.confirmation_service import Confirmations
    from sfumato.features.policy.service import Policy
    from sfumato.features.queries.service import Queries
    from sfumato.features.streams.service import Streams
    from sfumato.features.surveys.service import Surveys
    from sfumato.features.synthetic.private_service import PrivateTwins
    from sfumato.features.synthetic.service import Twins
    from sfumato.vault.users import Caller


@dataclass(frozen=True)
class Dispatcher:
    """Calls the services of one vault by verb (API operation)."""

    queries: Queries
    adding: AddJobs
    access: Access
    audit: Audit
    streams: Streams
    twins: Twins
    private_twins: PrivateTwins
    policy: Policy
    caps: Caps
    surveys: Surveys
    pipelines: Pipelines
    airlock: Airlock
    sites: SiteService
    health: Readiness

    @property
    def data_sets(self) -> DataSets:
        """Return the service that adds and lists data sets."""
        return self.adding.sources.data_sets

    @property
    def uploads(self) -> Uploads:
        """Return the service that stores uploaded files."""
        return self.adding.sources.uploads

    @property
    def folders(self) -> FolderUploads:
        """Return the service that stores uploaded folders."""
        return self.adding.sources.folders

    @property
    def connections(self) -> Connections:
        """Return the service of connections to external databases."""
        return self.adding.sources.connections

    @property
    def jobs(self) -> Jobs:
        """Return the service that runs background jobs."""
        return self.adding.jobs

    @property
    def confirmations(self) -> Confirmations:
        """Return the service of confirmations by a second person."""
        return self.adding.confirmations

    def admitted(self, verb: str, token: str) -> Caller | None:
        """Authenticate the access token if the verb needs one; return its caller, or refuse.

        Returns None for a verb that needs no token. This check precedes all other work of a call.
        """
        action = BY_NAME[verb].action
        return None if action is None else self.access.admission.caller(token)

    def recalled(self, verb: str, token: str) -> Caller | None:
        """Return the access token's caller from the cache, without a database read.

        Returns None if the cache does not have the token, or if the verb needs no token.
        """
        action = BY_NAME[verb].action
        return None if action is None else self.access.admission.cached_caller(token)

    def check(self, verb: str, caller: Caller | None, data_set: object = None) -> Caller:
        """Return the caller if they may use the verb on that data set. Refuse any other caller."""
        action = BY_NAME[verb].action
        if caller is None or action is None:
            raise Bug(f"{verb!r} was called by nobody")
        check(caller, action, data_set)
        return caller

    def done(
        self, verb: str, caller: Caller | None, body: Mapping[str, object], address: str = ""
    ) -> Json:
        """Check the caller's rights, execute the verb (API operation) and return its result.

        Refuse a caller without the rights.
        """
        declared = BY_NAME[verb]
        if declared.action is None:
            return declared.run(self, address, declared.read(body))
        allowed = self.check(verb, caller, body.get("data_set"))
        return declared.run(self, allowed, declared.read(body))


def check(caller: Caller, action: str, data_set: object) -> None:
    """Refuse an action or a data set that the caller's token does not permit."""
    if action != "any" and not caller.may(action):
        raise Refused(
            "not-allowed",
            f"You do not have the right to {action}, which this needs.",
            "Ask an operator for a role that has this right.",
        )
    if action in ("operate", "audit") and caller.data_sets is not None:
        raise Refused(
            "not-allowed",
            "Your access token is only for some data sets, and this concerns all of them.",
            "Use a token that is for every data set, or sign in with your password.",
        )
    if data_set is not None and not (isinstance(data_set, str) and caller.reaches(data_set)):
        raise Refused(
            "unknown-data-set",
            "There is no data set of that name, or your access token is not for it.",
            "Check the name, or use another token.",
        )
