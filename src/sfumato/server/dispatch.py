"""Dispatch verbs (API operations) to services: authenticate, authorise, then execute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Bug, Refused
from sfumato.features.access.service import Access
from sfumato.features.airlock.service import Airlock
from sfumato.features.airlock.verbs import AIRLOCK_VERBS
from sfumato.features.audit import verbs as audit_verbs
from sfumato.features.audit.service import Audit
from sfumato.features.data_sets.connection_service import Connections
from sfumato.features.data_sets.connection_verbs import CONNECTION_VERBS
from sfumato.features.data_sets.service import DataSets
from sfumato.features.data_sets.upload_service import Uploads
from sfumato.features.data_sets.upload_verbs import UPLOAD_VERBS
from sfumato.features.federated.service import SiteService
from sfumato.features.federated.verbs import SITE_VERBS
from sfumato.features.health.service import Readiness
from sfumato.features.jobs.service import Jobs
from sfumato.features.jobs.verbs import JOB_VERBS, asked_of, release_json
from sfumato.features.pipelines.service import Pipelines
from sfumato.features.pipelines.verbs import PIPELINE_VERBS
from sfumato.features.policy.caps_service import Caps
from sfumato.features.policy.confirmation_service import Confirmations
from sfumato.features.policy.service import Policy
from sfumato.features.policy.verbs import OWNER_VERBS
from sfumato.features.queries.service import Queries
from sfumato.features.streams import verbs as streams_verbs
from sfumato.features.streams.service import Streams
from sfumato.features.surveys.service import Surveys
from sfumato.features.surveys.verbs import OPEN_SURVEY_VERBS, SURVEY_VERBS
from sfumato.features.synthetic import verbs as synthetic_verbs
from sfumato.features.synthetic.private_service import PrivateTwins
from sfumato.features.synthetic.service import Twins
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, count_of, flag_of, optional_texts, text_of, texts_of
from sfumato.wire.verb_table import BY_VERB, VERSION, WIRE


@dataclass(frozen=True)
class Dispatcher:
    """The services of one vault, called by verb."""

    queries: Queries
    data_sets: DataSets
    access: Access
    audit: Audit
    streams: Streams
    twins: Twins
    private_twins: PrivateTwins
    policy: Policy
    caps: Caps
    confirmations: Confirmations
    jobs: Jobs
    uploads: Uploads
    connections: Connections
    surveys: Surveys
    pipelines: Pipelines
    airlock: Airlock
    sites: SiteService
    health: Readiness

    def admitted(self, verb: str, token: str) -> Caller | None:
        """Authenticate the token if the verb needs one, before anything else; or refuse."""
        action = BY_VERB[verb].action
        return None if action is None else self.access.admission.caller(token)

    def recalled(self, verb: str, token: str) -> Caller | None:
        """Return the caller from the cache of recent tokens, without a database read; or None."""
        action = BY_VERB[verb].action
        return None if action is None else self.access.admission.cached_caller(token)

    def check(self, verb: str, caller: Caller | None, data_set: object = None) -> Caller:
        """Return the caller if they may use the verb on that data set; or refuse."""
        action = BY_VERB[verb].action
        if caller is None or action is None:
            raise Bug(f"{verb!r} was called by nobody")
        check(caller, action, data_set)
        return caller

    def done(self, verb: str, caller: Caller | None, body: Body, place: str = "") -> Json:
        """Check the caller's rights, execute the verb and return its result; or refuse."""
        if BY_VERB[verb].action is None:
            return _OPEN[verb](self, body, place)
        return _VERBS[verb](self, self.check(verb, caller, body.get("data_set")), body)


def check(caller: Caller, action: str, data_set: object) -> None:
    """Refuse an action that the caller's token does not permit."""
    if action != "any" and not caller.may(action):
        raise Refused(
            "not-allowed", f"This needs the right to {action}.", "Ask an operator for the role."
        )
    if action in ("operate", "audit") and caller.data_sets is not None:
        raise Refused(
            "not-allowed",
            "Your token is for some data sets, and this is about all of them.",
            "Use a token that is for every data set.",
        )
    if data_set is not None and not (isinstance(data_set, str) and caller.reaches(data_set)):
        raise Refused(
            "unknown-data-set",
            "There is no data set of that name that your token is for.",
            "See what there is; or sign in with another token.",
        )


def _hello(_desk: Dispatcher, _body: Body, _place: str) -> Json:
    return {"wire": WIRE, "version": VERSION}


def _ready(desk: Dispatcher, _body: Body, _place: str) -> Json:
    missing = desk.health.missing()
    return {"ready": not missing, "missing": list(missing)}


def _sign_in(desk: Dispatcher, body: Body, place: str) -> Json:
    device = "" if body.get("device") is None else text_of(body, "device")
    return desk.access.sign_in(text_of(body, "user"), text_of(body, "password"), place, device)


def _take_up(desk: Dispatcher, body: Body, place: str) -> Json:
    return desk.access.take_up(text_of(body, "invitation"), text_of(body, "password"), place)


def _make_token(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.access.make_token(
        caller,
        label=text_of(body, "label"),
        actions=optional_texts(body, "actions"),
        data_sets=optional_texts(body, "data_sets"),
        days=count_of(body, "days", 30, 90),
    )


def _invite(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.access.invite(caller, text_of(body, "user"), texts_of(body, "roles"))


def _change_user(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    blocked = flag_of(body, "blocked")
    return desk.access.change(caller, text_of(body, "user"), texts_of(body, "roles"), blocked)


def _data_sets(desk: Dispatcher, caller: Caller, _body: Body) -> Json:
    return {"data_sets": desk.queries.data_sets(caller)}


def _ask(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return release_json(desk.queries.ask(caller, asked_of(body)))


_OPEN: Final[Mapping[str, Callable[[Dispatcher, Body, str], Json]]] = {
    "hello": _hello,
    "ready": _ready,
    "sign-in": _sign_in,
    "take-up": _take_up,
    **OPEN_SURVEY_VERBS,
}
_VERBS: Final[Mapping[str, Callable[[Dispatcher, Caller, Body], Json]]] = {
    "sign-out": lambda desk, caller, _: desk.access.sign_out(caller),
    "me": lambda desk, caller, _: desk.access.me(caller),
    "tokens": lambda desk, caller, _: {
        "tokens": desk.access.tokens(caller),
        "invitations": desk.access.invitations(caller.user),
    },
    "make-token": _make_token,
    "revoke-token": lambda d, caller, body: d.access.revoke(caller, text_of(body, "token")),
    "users": lambda desk, _caller, _: {"users": desk.access.users()},
    "invite": _invite,
    "change-user": _change_user,
    "revoke-tokens": lambda d, caller, body: d.access.revoke_all(caller, text_of(body, "user")),
    "data-sets": _data_sets,
    "card": lambda d, caller, body: d.queries.card(caller, text_of(body, "data_set")),
    "budget": lambda d, caller, body: d.queries.budget(caller, text_of(body, "data_set")),
    "price": lambda d, caller, body: d.queries.price(caller, asked_of(body)),
    "ask": _ask,
    "stream": lambda d, caller, body: streams_verbs.show(d.streams, caller, body),
    "open-stream": lambda d, caller, body: streams_verbs.open_(d.streams, caller, body),
    "close-stream": lambda d, caller, body: streams_verbs.close(d.streams, caller, body),
    "twin": lambda d, caller, body: synthetic_verbs.schema(d.twins, caller, body),
    "dp-twin": lambda d, caller, body: synthetic_verbs.private(d.private_twins, caller, body),
    "dp-twin-price": lambda d, caller, body: synthetic_verbs.private_price(
        d.private_twins, caller, body
    ),
    "history": lambda d, caller, body: audit_verbs.history(d.queries, caller, body),
    "answer": lambda d, caller, body: audit_verbs.answer(d.queries, caller, body),
    "entries": lambda d, _caller, body: audit_verbs.entries(d.audit, body),
    "verify-ledger": lambda d, _caller, _: d.audit.verified(),
    "present-receipt": lambda d, _caller, body: audit_verbs.present(d.audit, body),
    "releases": lambda d, _caller, body: audit_verbs.releases(d.audit, body),
    "sheet": lambda d, _caller, body: audit_verbs.sheet(d.audit, body),
    "metrics": lambda _desk, _caller, _: {"began": 0.0, "calls": []},  # only a service counts calls
    "policies": lambda d, _caller, _: d.audit.policies(),
    **OWNER_VERBS,
    **JOB_VERBS,
    **PIPELINE_VERBS,
    **AIRLOCK_VERBS,
    **UPLOAD_VERBS,
    **CONNECTION_VERBS,
    **SURVEY_VERBS,
    **SITE_VERBS,
}
