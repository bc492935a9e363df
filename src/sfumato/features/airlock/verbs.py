"""The verbs of the airlock (output checking): several people review files before a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.airlock.schema import (
    AirlockRequest,
    AirlockRequests,
    OneRequest,
    ReleasedFiles,
    ReplaceFile,
    SubmitAirlock,
    TrimFile,
    Vote,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import OfDataSet
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.airlock.service import Airlock
    from sfumato.vault.users import Caller

AIRLOCK_VERBS: Final = Verbs()
_OF_DATA_SET: Final = "/v1/data-sets/{data_set}/airlock"
_ONE: Final = "/v1/airlock/{request}"
_SUBMITTED: Final = ("airlock-unknown", "airlock-waits", "anchor-missing", "ledger-frozen")
_REFUSALS: Final = (*_SUBMITTED, "airlock-changed", "bad-airlock", "unknown-column")


class Services(Protocol):
    """The services of the vault that the airlock verbs call."""

    @property
    def airlock(self) -> Airlock:
        """Return the service of the airlock (output checking)."""
        ...


@AIRLOCK_VERBS.verb(
    "airlock", "GET", _OF_DATA_SET, "any", OfDataSet, AirlockRequests,
    refusals=("unknown-data-set",),
)  # fmt: skip
def airlock_requests(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List the airlock requests of a data set that you may see."""
    return services.airlock.all(caller, asked.data_set)


@AIRLOCK_VERBS.verb(
    "submit-airlock", "POST", _OF_DATA_SET, "ask", SubmitAirlock, AirlockRequest,
    refusals=(
        *_SUBMITTED, "airlock-closed", "bad-airlock", "bad-environment", "bad-pipeline",
        "unknown-column", "unknown-data-set",
    ),
)  # fmt: skip
def submit_airlock(services: Services, caller: Caller, asked: SubmitAirlock) -> Json:
    """Submit a program and declare its files, which reviewers check before a release."""
    return services.airlock.submit(caller, asked.data_set, asked.as_body("data_set"))


@AIRLOCK_VERBS.verb(
    "show-airlock", "GET", _ONE, "any", OneRequest, AirlockRequest, refusals=_REFUSALS
)
def show_airlock(services: Services, caller: Caller, asked: OneRequest) -> Json:
    """Return a request; its reviewers also see its real files and the findings of the checks."""
    return services.airlock.show(caller, asked.request)


@AIRLOCK_VERBS.verb(
    "fetch-airlock", "GET", f"{_ONE}/files", "any", OneRequest, ReleasedFiles, refusals=_REFUSALS
)
def fetch_airlock(services: Services, caller: Caller, asked: OneRequest) -> Json:
    """Return the files of a released request, with the signed receipt."""
    return services.airlock.fetch(caller, asked.request)


@AIRLOCK_VERBS.verb(
    "run-airlock", "POST", f"{_ONE}/run", "any", OneRequest, AirlockRequest,
    refusals=(
        *_REFUSALS, "bad-environment", "bad-pipeline", "data-set-frozen", "sandbox-missing",
    ),
    is_long=True,
)  # fmt: skip
def run_airlock(services: Services, caller: Caller, asked: OneRequest) -> Json:
    """Run a request's program once on the real rows; only the data set's owner may."""
    return services.airlock.run(caller, asked.request)


@AIRLOCK_VERBS.verb(
    "decline-airlock", "POST", f"{_ONE}/decline", "any", OneRequest, AirlockRequest,
    refusals=_REFUSALS,
)  # fmt: skip
def decline_airlock(services: Services, caller: Caller, asked: OneRequest) -> Json:
    """Decline a request; only the data set's owner may."""
    return services.airlock.decline(caller, asked.request)


@AIRLOCK_VERBS.verb(
    "withdraw-airlock", "POST", f"{_ONE}/withdraw", "any", OneRequest, AirlockRequest,
    refusals=_REFUSALS,
)  # fmt: skip
def withdraw_airlock(services: Services, caller: Caller, asked: OneRequest) -> Json:
    """Withdraw a request; only its author may."""
    return services.airlock.withdraw(caller, asked.request)


@AIRLOCK_VERBS.verb(
    "vote-airlock", "POST", f"{_ONE}/vote", "any", Vote, AirlockRequest, refusals=_REFUSALS
)
def vote_airlock(services: Services, caller: Caller, asked: Vote) -> Json:
    """Vote on whether the files that you saw may be released; the author has no vote."""
    seen = asked.seal, asked.draft
    return services.airlock.vote(caller, asked.request, asked.says, seen, asked.why or "")


@AIRLOCK_VERBS.verb(
    "trim-airlock", "POST", f"{_ONE}/trim", "any", TrimFile, AirlockRequest, refusals=_REFUSALS
)
def trim_airlock(services: Services, caller: Caller, asked: TrimFile) -> Json:
    """Remove a file from the files under review; earlier approvals become void."""
    return services.airlock.trim(caller, asked.request, asked.path)


@AIRLOCK_VERBS.verb(
    "replace-airlock", "POST", f"{_ONE}/replace", "any", ReplaceFile, AirlockRequest,
    refusals=_REFUSALS,
)  # fmt: skip
def replace_airlock(services: Services, caller: Caller, asked: ReplaceFile) -> Json:
    """Replace a file under review by one of yours; earlier approvals become void."""
    return services.airlock.replace(caller, asked.request, asked.path, asked.base64)


@AIRLOCK_VERBS.verb(
    "release-airlock", "POST", f"{_ONE}/release", "any", OneRequest, AirlockRequest,
    refusals=(*_REFUSALS, "airlock-unsafe"),
)  # fmt: skip
def release_airlock(services: Services, caller: Caller, asked: OneRequest) -> Json:
    """Release a request's files, if enough reviewers voted for exactly these files."""
    return services.airlock.release(caller, asked.request)
