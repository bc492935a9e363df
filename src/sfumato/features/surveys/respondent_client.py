"""A respondent's device, without a browser: it draws the noise, blinds the token, sends the report.

What the house is told is one blinded number under an invitation, and one randomised report under a
token that it cannot connect with it. The true answers stay in the arguments of `prepared`.
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
from sfumato.features.surveys.ballot import (
    Published,
    Truth,
    make_report,
    mark_of,
    read_published,
    read_report,
    token_digest,
    words_for,
)
from sfumato.features.surveys.blind_signatures import (
    TOKEN_BYTES,
    blind,
    is_proven,
    unblind,
    unproven,
)
from sfumato.features.surveys.device_file_reader import kept_text, unreadable
from sfumato.system.durable_files import sync, write_new

SECRET_BYTES: Final = 32


class House(Protocol):
    """Where a survey is: the verbs, over HTTP or in this process."""

    def call(self, verb: str, body: Json) -> Json:
        """Return the service's answer, or raise its refusal."""
        ...


@dataclass(frozen=True)
class Coins:
    """The device's own randomness."""

    bytes_of: Callable[[int], bytes]

    def draw(self, count: int) -> bytes:
        """Return that many fresh random bytes."""
        return self.bytes_of(count)


@dataclass(frozen=True)
class Prepared:
    """What will be sent, and nothing else: it may wait until there is a network."""

    survey: str
    said: str
    token: bytes
    signature: bytes

    @property
    def mark(self) -> str:
        """Return what the respondent finds their report by, among those that all may read."""
        return mark_of(token_digest(self.token), self.said)

    def send(self, house: House) -> Json:
        """Send the report; sent again, it counts once."""
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
    """One respondent's device: its secret makes every answer permanent (soundness rule 32)."""

    secret: bytes
    coins: Coins
    waves: dict[str, Wave] | None = None  # of series: what it has answered; None, if that is lost

    @staticmethod
    def new(draw: Callable[[int], bytes], waves: dict[str, Wave] | None = None) -> Device:
        """Return a device with a new secret.

        Args:
            draw: A source of random bytes.
            waves: What was answered of series of surveys; without it, a series is refused.

        Returns:
            The device.
        """
        return Device(draw(SECRET_BYTES), Coins(draw), waves)

    def said(self, made: Published, truths: Mapping[str, Truth]) -> str:
        """Return the randomised report for these answers: the same whenever it is asked again.

        Args:
            made: The published survey.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The report, as it is sent.

        Raises:
            Refused: `bad-report` for an answer that the survey does not take.
        """
        return make_report(made, truths, self.secret)

    def in_words(self, made: Published, truths: Mapping[str, Truth]) -> list[tuple[int, str]]:
        """Return the randomised report in words.

        Args:
            made: The published survey.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The number of each question, and what is said.
        """
        said = self.said(made, truths)
        numbers = (one.question + 1 for one in read_report(made, said))
        words = (words for _, words in words_for(made, said))
        return list(zip(numbers, words, strict=True))

    def begun(self, made: Published, invitation: str, truths: Mapping[str, Truth]) -> Waiting:
        """Return the randomised report and a blinded token; nothing is sent yet.

        Args:
            made: The published survey.
            invitation: The invitation code.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The ballot, which waits for a signed token.

        Raises:
            Refused: `not-allowed` for a wave that asks otherwise than those this device has begun.
        """
        if made.survey.series:
            waves = self._remembering()
            check_wave(made, waves)
            waves.update(with_wave(made, waves))
        token = self.coins.draw(TOKEN_BYTES)
        hidden = blind(made.key, token, self.coins)
        return Waiting(
            made.id, invitation, self.said(made, truths), token, hidden.message, hidden.inverse
        )

    def _remembering(self) -> dict[str, Wave]:
        """Return the memory of waves; without it no series is answered (soundness rule 32)."""
        if self.waves is None:
            raise Refused(
                "not-allowed",
                "This survey is one of a series, and this device does not keep what it answers.",
                "Answer with sfumato.features.surveys.device_files.KeptDevice, which keeps it in a file.",  # noqa: E501
            )
        return self.waves

    def prepared(
        self, house: House, survey: str, invitation: str, truths: Mapping[str, Truth]
    ) -> Prepared:
        """Return the randomised report with a signed token; the report is not sent yet.

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
        self, house: House, survey: str, invitation: str, truths: Mapping[str, Truth]
    ) -> Prepared:
        """Randomise the answers and send the report.

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
class Waiting:
    """A report under a token that may have been signed or not, until the house has said so.

    It has to be kept before the house is asked: an invitation is signed for one blinded token, the
    same one again and again, and for no other. Whoever loses it has lost their ballot.
    """

    survey: str
    invitation: str
    said: str
    token: bytes
    blinded: bytes
    inverse: int

    def signed(self, house: House, made: Published) -> Prepared:
        """Return the report with its token signed; asked again, the house answers the same."""
        asked: Json = {
            "survey": self.survey, "invitation": self.invitation, "blinded": shown(self.blinded),
        }  # fmt: skip
        signed = heard(house.call("survey-token", asked).get("signed"))
        is_signed = len(signed) == made.key.size and _whole(signed) < made.key.modulus
        if not is_signed or _power(made, signed) != _whole(self.blinded):
            raise Refused(  # any other would mark this person's report
                "ballot-forged",
                "The house has not signed your ballot.",
                "Nothing was sent. Ask who invited you.",
            )
        signature = unblind(made.key, signed, self.inverse)
        return Prepared(self.survey, self.said, self.token, signature)

    def text(self) -> str:
        """Return it as a device keeps it."""
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


def keep_ballot(device: Path, waiting: Waiting) -> None:
    """Write the ballot beside the device's secret, where nobody else may read it, durably."""
    write(_waiting_at(device, waiting.survey), waiting.text())


def keep_waves(device: Path, waves: Mapping[str, Wave]) -> None:
    """Write what the device has answered of series beside its secret, durably."""
    write(waves_at(device), waves_text(waves))


def write(path: Path, text: str) -> None:
    """Write a file that nobody else may read, durably and in one step."""
    on_disk(path, text.encode("ascii")).replace(path)
    sync(path.parent)  # or the name could be gone after a power cut, and the invitation with it


def on_disk(path: Path, content: bytes) -> Path:
    """Return a draft beside the path that has this content on the disk already."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    write_new(draft, content)
    return draft


def kept_ballot(device: Path, survey: str) -> Waiting | None:
    """Return the ballot that waits, if one does; it is written in one step, or not at all.

    One that cannot be read may have been signed, or sent: nothing is begun in its place.
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
    """Remove the ballot that waited."""
    _waiting_at(device, survey).unlink(missing_ok=True)


def _waiting_at(device: Path, survey: str) -> Path:
    return device.with_name(f"{device.name}.waiting.{survey}")


def _read_waiting(text: str) -> Waiting:
    kept = json.loads(text)
    return Waiting(
        kept["survey"], str(kept["invitation"]), str(kept["said"]), read(kept["token"]),
        read(kept["blinded"]), int(kept["inverse"], 16),
    )  # fmt: skip


def proven(house: House, survey: str) -> Published:
    """Return the survey, if it takes ballots and its key is shown to mark nobody."""
    found = house.call("survey", {"survey": survey})
    made = _read_published(found, survey)
    if found.get("state") != "open":
        raise Refused(
            "survey-not-open", "This survey takes no ballots now.", "It is closed, or see its days."
        )
    roots = found.get("proof")
    if not isinstance(roots, list) or not is_proven(made.key, list(map(heard, roots))):
        raise unproven()
    return made


def published(house: House, survey: str) -> Published:
    """Return the survey, if it is the one whose id this is; a house cannot show another."""
    return _read_published(house.call("survey", {"survey": survey}), survey)


def _read_published(found: Json, survey: str) -> Published:
    made = read_published(str(found.get("text")))
    if made.id != survey:
        raise Refused("bad-survey", "This is not the survey of that link.", "Ask who invited you.")
    return made


def _power(made: Published, signed: bytes) -> int:
    return pow(_whole(signed), made.key.exponent, made.key.modulus)


def _whole(value: bytes) -> int:
    return int.from_bytes(value, "big")


def in_words(text: str, reports: Sequence[str]) -> list[str]:
    """Return in words what each report says, of the survey whose published text this is."""
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
    """Return the bytes as they travel."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


def read(text: str) -> bytes:
    """Return bytes that have travelled."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def heard(said: object) -> bytes:
    """Return bytes that a house has said; of what are none, none."""
    with contextlib.suppress(ValueError):
        return read(said) if isinstance(said, str) else b""
    return b""
