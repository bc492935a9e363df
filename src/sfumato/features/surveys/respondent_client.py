"""Answer a survey from Python: randomise the answers, blind a ballot token, send the report.

The server sees a blinded number with the invitation, and later a randomised report with a token
that it can't link to that number. The true answers stay in the arguments of `prepared`.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sfumato.client.ask_terms import Json
from sfumato.dp.refusal import Refused
from sfumato.features.surveys.answered_waves import (
    Wave,
    check_wave,
    waves_at,
    waves_text,
    with_wave,
)
from sfumato.features.surveys.blind_signatures import (
    TOKEN_BYTES,
    blind,
    is_proven,
    unblind,
    unproven,
)
from sfumato.features.surveys.device_file_reader import kept_text, unreadable
from sfumato.features.surveys.randomised_report import (
    Published,
    Truth,
    make_report,
    mark_of,
    read_published,
    read_report,
    token_digest,
    words_for,
)
from sfumato.system.durable_files import sync, write_new

SECRET_BYTES: Final = 32


class ServerConnection(Protocol):
    """A connection to the server or vault that has the survey, over HTTP or in this process."""

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation) of the service; return its answer or raise its refusal."""
        ...


@dataclass(frozen=True)
class Coins:
    """The device's source of random bytes, from a plain function, as an object with `draw`."""

    bytes_of: Callable[[int], bytes]

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes of the device."""
        return self.bytes_of(count)


@dataclass(frozen=True)
class Prepared:
    """A randomised report with its signed ballot token, ready to send now or later."""

    survey: str
    said: str
    token: bytes
    signature: bytes

    @property
    def mark(self) -> str:
        """Return the mark: a code by which the respondent finds their report in the public list."""
        return mark_of(token_digest(self.token), self.said)

    def send(self, house: ServerConnection) -> Json:
        """Send the report to the server; sending it twice counts it once."""
        return house.call(
            "survey-report",
            {
                "survey": self.survey,
                "token": shown(self.token),
                "signature": shown(self.signature),
                "said": self.said,
            },
        )


@dataclass(frozen=True)
class Device:
    """One respondent's device; all noise follows from its secret (soundness rule 32)."""

    secret: bytes
    coins: Coins
    waves: dict[str, Wave] | None = None  # answered series of surveys; None if not recorded

    @staticmethod
    def new(draw: Callable[[int], bytes], waves: dict[str, Wave] | None = None) -> Device:
        """Return a respondent's device with a new secret, from which its noise follows.

        Args:
            draw: A source of random bytes.
            waves: The series that were answered before; if None, every series is refused.

        Returns:
            The device.
        """
        return Device(draw(SECRET_BYTES), Coins(draw), waves)

    def said(self, made: Published, truths: Mapping[str, Truth]) -> str:
        """Return the randomised report for these answers; the same answers give the same report.

        Args:
            made: The published survey.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The report as text, as it is sent.

        Raises:
            Refused: `bad-request` for an answer that the survey does not accept.
        """
        return make_report(made, truths, self.secret)

    def in_words(self, made: Published, truths: Mapping[str, Truth]) -> list[tuple[int, str]]:
        """Return the randomised report in words, before it is sent.

        Args:
            made: The published survey.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The number of each question, and its randomised answer in words.

        Raises:
            Refused: `bad-request` for an answer that the survey does not accept.
        """
        said = self.said(made, truths)
        numbers = (one.question + 1 for one in read_report(made, said))
        words = (words for _, words in words_for(made, said))
        return list(zip(numbers, words, strict=True))

    def begun(self, made: Published, invitation: str, truths: Mapping[str, Truth]) -> UnsentBallot:
        """Randomise the answers and blind a ballot token; nothing is sent yet.

        Args:
            made: The published survey.
            invitation: The invitation code.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The ballot, whose token is not signed yet.

        Raises:
            Refused: `not-allowed` for a device without a record of series; `bad-survey` for a wave
                that differs from the wave that this device has answered.
        """
        if made.survey.series:
            waves = self._remembering()
            check_wave(made, waves)
            waves.update(with_wave(made, waves))
        token = self.coins.draw(TOKEN_BYTES)
        hidden = blind(made.key, token, self.coins)
        return UnsentBallot(
            made.id, invitation, self.said(made, truths), token, hidden.message, hidden.inverse
        )

    def _remembering(self) -> dict[str, Wave]:
        """Return the device's record of answered series, which a survey of a series needs.

        Refuse a device that has no record (soundness rule 32).
        """
        if self.waves is None:
            raise Refused(
                "not-allowed",
                "This survey is one of a series, and this device does not store what it answers.",
                "Answer with sfumato.features.surveys.device_files.KeptDevice, which stores it "
                "in a file.",
            )
        return self.waves

    def prepared(
        self, house: ServerConnection, survey: str, invitation: str, truths: Mapping[str, Truth]
    ) -> Prepared:
        """Randomise the answers and get a signed token; the report is not sent yet.

        Args:
            house: The vault that has the survey.
            survey: The id of the survey.
            invitation: The invitation code.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The report, ready to be sent.

        Raises:
            Refused: `survey-not-open`, `invitation-unknown`, `invitation-used` or `ballot-forged`.
        """
        made = proven(house, survey)
        return self.begun(made, invitation, truths).signed(house, made)

    def answer(
        self, house: ServerConnection, survey: str, invitation: str, truths: Mapping[str, Truth]
    ) -> Prepared:
        """Randomise the answers and send the report to the server.

        Args:
            house: The vault that has the survey.
            survey: The id of the survey.
            invitation: The invitation code.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            What was sent.

        Raises:
            Refused: `survey-not-open`, `invitation-unknown`, `invitation-used` or `ballot-forged`.
        """
        ready = self.prepared(house, survey, invitation, truths)
        ready.send(house)
        return ready


@dataclass(frozen=True)
class UnsentBallot:
    """A ballot whose token is not signed yet, as far as this device knows.

    Store it before you ask the server for the signature. The server signs one blinded token per
    invitation: the same one as often as asked, and no other. If it is lost, so is the ballot.
    """

    survey: str
    invitation: str
    said: str
    token: bytes
    blinded: bytes
    inverse: int

    def signed(self, house: ServerConnection, made: Published) -> Prepared:
        """Get the token signed by the server; repeating the request returns the same signature."""
        asked: Json = {
            "survey": self.survey, "invitation": self.invitation, "blinded": shown(self.blinded),
        }  # fmt: skip
        signed = heard(house.call("survey-token", asked).get("signed"))
        is_signed = len(signed) == made.key.size and _whole(signed) < made.key.modulus
        if not is_signed or _power(made, signed) != _whole(self.blinded):
            raise Refused(  # another signature could mark this person's report
                "ballot-forged",
                "The service did not sign your ballot token correctly, so it could recognise "
                "your report.",
                "Nothing was sent. Ask who invited you.",
            )
        signature = unblind(made.key, signed, self.inverse)
        return Prepared(self.survey, self.said, self.token, signature)

    def text(self) -> str:
        """Return the unsent ballot as JSON text for the device's file."""
        bytes_ = {"token": self.token, "blinded": self.blinded}
        return json.dumps(
            {
                "survey": self.survey,
                "invitation": self.invitation,
                "said": self.said,
                "inverse": f"{self.inverse:x}",
                **{name: shown(value) for name, value in bytes_.items()},
            }
        )


def keep_ballot(device: Path, waiting: UnsentBallot) -> None:
    """Store the unsent ballot durably in a private file next to the device's secret."""
    write(_waiting_at(device, waiting.survey), waiting.text())


def keep_waves(device: Path, waves: Mapping[str, Wave]) -> None:
    """Store the record of answered series durably, next to the device's secret."""
    write(waves_at(device), waves_text(waves))


def write(path: Path, text: str) -> None:
    """Write a private file durably and atomically."""
    on_disk(path, text.encode("ascii")).replace(path)
    sync(path.parent)  # else a power cut could lose the file's name, and with it the invitation


def on_disk(path: Path, content: bytes) -> Path:
    """Write content durably to a draft file next to `path`; return the draft's path.

    The caller then gives the complete draft its final name, so a crash leaves no partial file.
    """
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    write_new(draft, content)
    return draft


def kept_ballot(device: Path, survey: str) -> UnsentBallot | None:
    """Return the stored unsent ballot of a survey, or None.

    A file that can't be read is refused: its ballot may have been signed or sent already, so no
    new one may replace it.
    """
    path, what = _waiting_at(device, survey), "which ballot of this device waits"
    text = kept_text(path, what)
    if text is None:
        return None
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        waiting = _read_waiting(text)
        if waiting.survey == survey and waiting.text() == text:
            return waiting
    raise unreadable(path, what)


def forget_ballot(device: Path, survey: str) -> None:
    """Delete the stored unsent ballot of a survey from the device."""
    _waiting_at(device, survey).unlink(missing_ok=True)


def _waiting_at(device: Path, survey: str) -> Path:
    return device.with_name(f"{device.name}.waiting.{survey}")


def _read_waiting(text: str) -> UnsentBallot:
    kept = json.loads(text)
    return UnsentBallot(
        kept["survey"], str(kept["invitation"]), str(kept["said"]), read(kept["token"]),
        read(kept["blinded"]), int(kept["inverse"], 16),
    )  # fmt: skip


def proven(house: ServerConnection, survey: str) -> Published:
    """Fetch a survey that is open, and check the proof that its key can't identify respondents."""
    found = house.call("survey", {"survey": survey})
    made = _read_published(found, survey)
    if found.get("state") != "open":
        raise Refused(
            "survey-not-open",
            "This survey is not open: it has not begun, or it is closed.",
            "Look on the survey's page at which days it is open.",
        )
    roots = found.get("proof")
    if not isinstance(roots, list) or not is_proven(made.key, list(map(heard, roots))):
        raise unproven()
    return made


def published(house: ServerConnection, survey: str) -> Published:
    """Fetch a published survey, and check its text against its id."""
    return _read_published(house.call("survey", {"survey": survey}), survey)


def _read_published(found: Json, survey: str) -> Published:
    made = read_published(str(found.get("text")))
    if made.id != survey:
        raise Refused(
            "bad-survey",
            "The survey that the service sent is not the one that the link names, so it was "
            "not answered.",
            "Ask who invited you.",
        )
    return made


def _power(made: Published, signed: bytes) -> int:
    return pow(_whole(signed), made.key.exponent, made.key.modulus)


def _whole(value: bytes) -> int:
    return int.from_bytes(value, "big")


def in_words(text: str, reports: Sequence[str]) -> list[str]:
    """Return each randomised report as text for people, given the survey's published text."""
    made = read_published(text)
    is_whole = made.survey.asked_each == len(made.survey.questions)
    found = []
    for report in reports:
        words = [words for _, words in words_for(made, report)]
        numbers = [one.question + 1 for one in read_report(made, report)]
        named = zip(numbers, words, strict=True)
        found.append("; ".join(words if is_whole else (f"{n}. {word}" for n, word in named)))
    return found


def shown(value: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def read(text: str) -> bytes:
    """Decode base64url text without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def heard(said: object) -> bytes:
    """Decode base64url text from an untrusted reply; anything invalid gives empty bytes."""
    with contextlib.suppress(ValueError):
        return read(said) if isinstance(said, str) else b""
    return b""
