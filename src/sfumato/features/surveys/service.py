"""The survey service: publish surveys, sign blinded ballot tokens, count randomised reports.

The service keeps three records that can't be joined. An invitation code buys one signature on a
blinded token that the service can't read. A report arrives under that token, which the service
sees for the first time. The ledger records that an invited person paid, and on which day.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Final
from unicodedata import normalize

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.surveys.blind_signatures import TOKEN_BYTES, PublicKey, read_blinded
from sfumato.features.surveys.estimation import (
    CONFIDENCE,
    LIARS,
    adding_up,
    expected,
    results,
    tried,
)
from sfumato.features.surveys.invitation_codes import (
    code_digest,
    make_code,
    read_bytes,
    shown_bytes,
    unknown_invitation,
)
from sfumato.features.surveys.model import bad_survey, read_survey
from sfumato.features.surveys.ports import Ballot, BallotKeys, Invited, StoredSurvey, SurveyStore
from sfumato.features.surveys.privacy_statement import privacy_statement
from sfumato.features.surveys.randomised_report import (
    Published,
    mark_of,
    read_report,
    token_digest,
)
from sfumato.features.surveys.release import (
    LOCAL,
    BallotCharge,
    charge_ballot,
    open_respondents,
    respondent_account,
)
from sfumato.features.surveys.schema import Submission
from sfumato.features.surveys.submission import not_open, outcome
from sfumato.features.surveys.tally import nothing
from sfumato.features.surveys.wave_series import asks_otherwise, is_beside_all, kept_survey
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller

MAX_SURVEYS: Final = 1000
MAX_INVITED: Final = 1000  # the most invitations of one request
AS_ESTIMATED, ADD_UP = SHARES = ("as-estimated", "add-up")
_PERSON: Final = b"sfumato-survey-person/1\n"


@dataclass(frozen=True)
class Surveys:
    """The survey service of one vault."""

    ledger: Ledger
    store: SurveyStore
    keys: BallotKeys
    clock: Clock
    dice: RandomSource
    salt: bytes
    published: dict[str, Published] = field(default_factory=dict)
    # Dice reports that were charged and not counted yet, by invitation; kept in memory alone.
    sheets: dict[str, Ballot] = field(default_factory=dict)

    def preview(self, caller: Caller, shape: object) -> Json:
        """Return a draft survey's epsilon, privacy statement and expected errors; store nothing."""
        _check_owner(caller)
        survey = read_survey(shape)
        drawn = Published(survey, PublicKey(1, 1))  # a dummy key: the privacy loss needs none
        return {
            "epsilon": float(drawn.epsilon),
            "guarantee": LOCAL,
            "promise": privacy_statement(drawn),
            "expected": [one.shape() for one in expected(survey)],
            "table": [
                {"epsilon": float(epsilon), "expected": [one.shape() for one in made]}
                for epsilon, made in tried(survey)
            ],
            "liars": float(LIARS),
        }

    def publish(self, caller: Caller, shape: object) -> Json:
        """Publish a survey: make its signing key, note it in the ledger, and store it for good."""
        _check_owner(caller)
        survey = read_survey(shape)
        if survey.closes < self._today():
            raise bad_survey("a survey must close today or later")
        if len(self.store.of(caller.user)) >= MAX_SURVEYS:
            raise Refused(
                "too-many",
                f"You have published {MAX_SURVEYS} surveys, which is the maximum.",
                "Ask another owner to publish this survey.",
            )
        fits = partial(is_beside_all, Published(survey, PublicKey(1, 1))) if survey.series else None
        if fits is not None and not fits(kept.text for kept in self.store.every()):
            raise asks_otherwise()
        key, waiting = self.keys.make()
        made = Published(survey, key)
        self.keys.keep(waiting, made.id)
        self.ledger.note(
            "survey-published",
            {
                "survey": made.id,
                "by": caller.user,
                "epsilon": str(made.epsilon),
                "guarantee": LOCAL,
                "unit": "one respondent's ballot",
                "people": survey.people,
                "lifetime": str(survey.lifetime),
            },
        )
        kept = StoredSurvey(made.id, caller.user, made.text, "open")
        if not self.store.add(kept, survey.minimum, nothing(survey), fits=fits):
            self.keys.forget(made.id)  # a conflicting wave was added at the same moment
            note: Json = {"survey": made.id, "by": caller.user, "reports": 0}
            self.ledger.note("survey-closed", note)
            raise asks_otherwise()
        return self._listed(kept)

    def of(self, caller: Caller) -> list[Json]:
        """Return the caller's surveys, sorted by closing day, latest first."""
        _check_owner(caller)
        found = [self._listed(kept) for kept in self.store.of(caller.user)]
        return sorted(found, key=lambda one: (str(one["closes"]), str(one["survey"])), reverse=True)

    def invite(self, caller: Caller, survey: str, count: int, people: Sequence[str] | None) -> Json:
        """Return new invitation codes, shown only once; each gives one ballot token.

        A named person has one lifetime account over all surveys of this owner. Of the name the
        service stores only an HMAC under the vault's secret.
        """
        kept, made = self._own(caller, survey)
        if kept.state == "closed":
            raise not_open()
        names = list(people) if people is not None else [None] * count
        if not 1 <= len(names) <= MAX_INVITED or len(set(people or ())) != len(people or ()):
            raise Refused(
                "bad-request",
                f"One request can invite 1 to {MAX_INVITED:,} people, and each of them only once.",
                "Name each person once, and invite the others with another request.",
            )
        codes = [make_code(self.dice) for _ in names]
        accounts = [self._account(caller.user, name) for name in names]
        open_respondents(self.ledger, accounts, made.survey.lifetime)
        self.ledger.note(
            "survey-invited", {"survey": survey, "by": caller.user, "count": len(names)}
        )
        pairs = zip(codes, accounts, strict=True)
        self.store.invite(tuple(Invited(code_digest(c), survey, account) for c, account in pairs))
        return {"survey": survey, "codes": codes, "people": people or []}

    def close(self, caller: Caller, survey: str) -> Json:
        """Close a survey: no more reports or tokens, and every report is shown."""
        kept, _ = self._own(caller, survey)
        self._end(kept, caller.user)
        return self._listed(replace(kept, state="closed"))

    def definition(self, survey: str) -> Json:
        """Return a survey's published text, its state and the proof of its signing key."""
        kept, made = self._found(survey)
        state = self._state(kept, made)
        proof = () if state == "closed" else self.keys.proof(survey)
        return {
            "survey": survey,
            "text": kept.text,
            "state": state,
            "proof": [shown_bytes(root) for root in proof],
            "epsilon": float(made.epsilon),
            "guarantee": LOCAL,
            "promise": privacy_statement(made),
        }

    def issue(self, survey: str, code: str, blinded: str) -> Json:
        """Sign a respondent's blinded ballot token, after charging the invited person's account."""
        kept, made = self._open(survey)
        message = read_bytes(blinded, made.key.size, "blinded")
        read_blinded(made.key, message)  # refuses before the charge what can't be signed
        self._charge(kept, made, code_digest(code), message)
        return {"signed": shown_bytes(self.keys.sign(survey, message))}

    def report(self, sent: Submission) -> Json:
        """Count a randomised report, once per token; the sender is not identified."""
        (ended,) = self.take([sent])
        if isinstance(ended, Refused):
            raise ended
        return ended

    def take(self, sent: Sequence[Submission]) -> list[Json | Refused]:
        """Count several reports in one commit; each gets its own result or refusal."""
        read = [self._read_sent(one) for one in sent]
        fresh = [one for one in read if isinstance(one, Ballot)]
        taken = iter(self.store.take_all(fresh) if fresh else ())
        return [outcome(one, next(taken)) if isinstance(one, Ballot) else one for one in read]

    def sheet(self, survey: str, code: str, said: str) -> Json:
        """Charge and count a report made with dice, from a browser without JavaScript.

        The server sees the invitation and the report together for a moment, and stores no link
        between them: it draws the report's token itself. The local noise still protects the
        respondent. If the server crashes between the charge and the count, the report is lost.
        """
        kept, made = self._open(survey)
        read_report(made, said)
        if not made.survey.paper:
            raise Refused(
                "bad-report",
                "This survey cannot be answered with dice, because its probabilities do not fit "
                "them.",
                "Answer it in a browser with JavaScript.",
            )
        invitation = code_digest(code)
        has_paid = self._charge(kept, made, invitation, self._sheet_mark(made, invitation))
        ballot = self.sheets.get(invitation)
        if ballot is None and has_paid:
            return {"counted": "before", "mark": ""}
        if ballot is None:
            ballot = Ballot(made.id, token_digest(self.dice.draw(TOKEN_BYTES)), said)
        self.sheets[invitation] = ballot  # charged already; if the count fails, a retry counts it
        ended = outcome(ballot, self.store.take(ballot))
        self.sheets.pop(invitation, None)
        if isinstance(ended, Refused):
            raise ended
        return ended

    def _sheet_mark(self, made: Published, invitation: str) -> bytes:
        """Return the digest in the charge for a report made with dice, which has no blinded token.

        The digest depends on the invitation alone. Only the survey's private key can tell the
        digest from that of a token, so no ledger entry shows who used dice.
        """
        message = b"\0" + hashlib.shake_256(f"sheet {invitation}".encode()).digest(
            made.key.size - 1
        )
        return hashlib.sha256(self.keys.sign(made.id, message)).digest()

    def estimates(self, survey: str, shares: str | None = None) -> Json:
        """Return the estimates from the shown reports, once the survey's minimum is met.

        Args:
            survey: The id of the survey.
            shares: `add-up` projects the shares of a question to the nearest that add up to 1;
                `as-estimated` or None leaves them unbiased.
        """
        if shares not in (None, *SHARES):
            raise Refused(
                "bad-request",
                "The value of shares is not known.",
                f"Set shares to {' or '.join(SHARES)}, or leave it out.",
            )
        is_adding_up = shares == ADD_UP
        kept, made = self._found(survey)
        shown = self.store.standing(survey).shown
        enough = shown.reports >= made.survey.minimum
        found = results(made, shown) if enough else ()
        return {
            "survey": survey,
            "title": made.survey.title,
            "state": self._state(kept, made),
            "enough": enough,
            "minimum": made.survey.minimum,
            "reports": shown.reports,
            "epsilon": float(made.epsilon),
            "guarantee": LOCAL,
            "confidence": CONFIDENCE,
            "liars": float(LIARS),
            "shares": ADD_UP if is_adding_up else AS_ESTIMATED,
            "questions": [one.shape() for one in (adding_up(found) if is_adding_up else found)],
        }

    def reports(self, survey: str, after: str | None) -> Json:
        """Return one page of the public randomised reports; their order says nothing of time."""
        self._found(survey)
        found = self.store.shown(survey, after)
        lines = [line.partition(" ") for _, lines in found for line in lines]
        return {
            "survey": survey,
            "reports": [{"mark": mark_of(t, said), "said": said} for t, _, said in lines],
            "next": found[-1][0] if found else None,
        }

    def _charge(self, kept: StoredSurvey, made: Published, digest: str, blinded: bytes) -> bool:
        invited = self.store.invited(digest)
        if invited is None or invited.survey != kept.id:
            raise unknown_invitation()
        asked = BallotCharge(
            kept.id, digest, invited.account, made.epsilon, made.survey.lifetime, blinded
        )
        return charge_ballot(self.ledger, asked)

    def _known(self, survey: str) -> Published:
        """Return the published survey with this id; it is cached, because it never changes."""
        found = self.published.get(survey)
        if found is None:
            found = self.published[survey] = self._found(survey)[1]
        return found

    def _read_sent(self, sent: Submission) -> Ballot | Refused:
        try:
            return self._ballot(sent)
        except Refused as refused:
            return refused

    def _ballot(self, sent: Submission) -> Ballot:
        made = self._known(sent.survey)
        token = read_bytes(sent.token, TOKEN_BYTES, "token")
        signature = read_bytes(sent.signature, made.key.size, "signature")
        read_report(made, sent.said)
        if not self.keys.is_signed(made.key, token, signature):
            raise Refused(
                "ballot-forged",
                "This ballot token was not signed for this survey.",
                "Get a ballot token for this survey with your invitation.",
            )
        if not made.survey.is_open(self._today()):
            raise not_open()
        return Ballot(made.id, token_digest(token), sent.said)

    def _listed(self, kept: StoredSurvey) -> Json:
        made = kept_survey(kept.text)
        shown = self.store.standing(kept.id).shown
        return {
            "survey": kept.id,
            "title": made.survey.title,
            "state": self._state(kept, made),
            "opens": made.survey.opens.isoformat(),
            "closes": made.survey.closes.isoformat(),
            "epsilon": float(made.epsilon),
            "guarantee": LOCAL,
            "invited": self.store.invitations(kept.id),
            "reports": shown.reports,
            "paper": made.survey.paper,
        }

    def _own(self, caller: Caller, survey: str) -> tuple[StoredSurvey, Published]:
        _check_owner(caller)
        kept, made = self._found(survey)
        if kept.owner != caller.user:
            raise _unknown()
        return kept, made

    def _found(self, survey: str) -> tuple[StoredSurvey, Published]:
        """Return the survey with this id, as stored and as parsed.

        If its last day is over, close the survey first.
        """
        kept = self.store.find(survey) if survey.isascii() and len(survey) <= 40 else None
        if kept is None:
            raise _unknown()
        made = kept_survey(kept.text)
        if kept.state == "open" and made.survey.closes < self._today():
            self._end(kept, "the calendar")
            kept = replace(kept, state="closed")
        if kept.state == "closed":
            # repeat this, because the server may have crashed before it did so
            self.keys.forget(survey)
        return kept, made

    def _open(self, survey: str) -> tuple[StoredSurvey, Published]:
        kept, made = self._found(survey)
        if self._state(kept, made) != "open":
            raise not_open()
        return kept, made

    def _end(self, kept: StoredSurvey, by: str) -> None:
        if self.store.close(kept.id):
            reports = self.store.standing(kept.id).reports
            self.ledger.note("survey-closed", {"survey": kept.id, "by": by, "reports": reports})
        self.keys.forget(kept.id)

    def _state(self, kept: StoredSurvey, made: Published) -> str:
        if kept.state == "open" and self._today() < made.survey.opens:
            return "waiting"
        return kept.state

    def _account(self, owner: str, name: str | None) -> str:
        if name is None:
            return respondent_account(self.dice.draw(16).hex())
        if not 1 <= len(name) <= 200 or not name.isprintable() or name != name.strip():
            raise Refused(
                "bad-request",
                "A person's name must be 1 to 200 printable characters, without spaces "
                "at its ends.",
                "Correct the name, or invite the person without one.",
            )
        spelled = normalize("NFC", name.casefold())  # one account for all spellings of a name
        person = f"{owner}\n{spelled}"  # unambiguous, because a printable name has no line break
        made = hmac.new(self.salt, _PERSON + person.encode(), hashlib.sha256)
        return respondent_account(made.hexdigest()[:32])

    def _today(self) -> date:
        return date.fromisoformat(self.clock.now()[:10])


def _check_owner(caller: Caller) -> None:
    if caller.data_sets is not None:
        raise Refused(
            "not-allowed",
            "Your access token is only for some data sets, so it cannot be used for surveys.",
            "Use a token that is for every data set, or sign in with your password.",
        )


def _unknown() -> Refused:
    return Refused(
        "survey-unknown",
        "There is no survey at that address.",
        "Check the link, or ask the person who invited you.",
    )
