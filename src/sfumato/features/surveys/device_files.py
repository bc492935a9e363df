"""Keep a respondent's device in files: its secret, unsent ballots, and what it has answered.

The files next to the secret hold the answered waves of each series, unsent ballots, answered
surveys, and each ballot's epsilon. Each file is written durably before a message that depends on it
is sent. So a crash at any moment draws no new noise and loses no ballot and no cost.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.surveys.answered_waves import check_wave, kept_waves, waves_at
from sfumato.features.surveys.device_file_reader import ANOTHER, kept_text, unreadable
from sfumato.features.surveys.randomised_report import Published, Truth, read_report
from sfumato.features.surveys.respondent_client import (
    SECRET_BYTES,
    Coins,
    Device,
    Prepared,
    ServerConnection,
    UnsentBallot,
    forget_ballot,
    keep_ballot,
    keep_waves,
    kept_ballot,
    on_disk,
    proven,
    write,
)
from sfumato.system.durable_files import make_folder

# after one of these refusals the ballot can never count; survey.js has the same list
FOR_GOOD: Final = (
    "bad-report", "bad-request", "ballot-spent", "budget-exceeded", "invitation-unknown",
    "invitation-used", "survey-not-open", "survey-unknown",
)  # fmt: skip
_IDS: Final = re.compile(r"([a-z2-7]{32}\n)+")  # survey ids, one a line


@dataclass(frozen=True)
class KeptDevice:
    """One respondent's device, stored in files; its secret is created at the first use."""

    path: Path
    draw: Callable[[int], bytes]

    def answer(
        self, house: ServerConnection, survey: str, invitation: str, truths: Mapping[str, Truth]
    ) -> Prepared:
        """Answer a survey once; after a failure, the same call sends the same ballot again.

        Args:
            house: The vault that has the survey.
            survey: The id of the survey.
            invitation: The invitation code.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            What was sent.

        Raises:
            Refused: `not-allowed` if this device has answered the survey, `survey-not-open`,
                `invitation-unknown` or `ballot-forged`.
        """
        made = proven(house, survey)
        waiting = self.waiting(made)
        return self.send(house, made, waiting or self.begun(made, invitation, truths))

    def waiting(self, made: Published) -> UnsentBallot | None:
        """Return the stored ballot that was not sent yet, or None.

        It is randomised already, so sending it does not need the device's secret.

        Args:
            made: The published survey.

        Returns:
            The ballot, or None.

        Raises:
            Refused: `not-allowed` if this device has answered the survey or lacks a file;
                `bad-survey` for a wave that differs from the wave that this device has answered.
        """
        self._check_first(made.id)
        found = kept_ballot(self.path, made.id)
        if found is None:
            self._check_none_left(made.id)
            self._check_waves(made)
        return found

    def device(self) -> Device:
        """Return the device with its secret and its record of answered series.

        Raises:
            Refused: `not-allowed` if the device's files are incomplete or damaged, or others may
                read the secret.
        """
        return Device(self._secret(), Coins(self.draw), kept_waves(self.path))

    def begun(self, made: Published, invitation: str, truths: Mapping[str, Truth]) -> UnsentBallot:
        """Randomise the answers and store the ballot durably; nothing is sent yet.

        Args:
            made: The published survey.
            invitation: The invitation code.
            truths: The true answer to each question, by its id; None is no answer. They stay here.

        Returns:
            The ballot.

        Raises:
            Refused: `not-allowed` if an unsent ballot is stored already.
        """
        with self._alone():
            if self.waiting(made) is not None:  # another process stored one meanwhile
                raise Refused(
                    "not-allowed",
                    "Another process on this device has stored a ballot for this survey that is "
                    "not sent yet.",
                    "Answer again. This sends the stored ballot, and counts once.",
                )
            own = self.device()
            waiting = own.begun(made, invitation, truths)
            # create an empty record before the first ballot
            if made.survey.series or not self._has_answered:
                keep_waves(self.path, own.waves or {})
            keep_ballot(self.path, waiting)
        return waiting

    def send(self, house: ServerConnection, made: Published, waiting: UnsentBallot) -> Prepared:
        """Send a stored ballot; delete it once it was counted or refused for good.

        Args:
            house: The vault that has the survey.
            made: The published survey.
            waiting: The ballot.

        Returns:
            What was sent.

        Raises:
            Refused: What the vault refuses with.
        """
        try:
            ready = waiting.signed(house, made)
            self._note(made, waiting)
            ready.send(house)
        except Refused as refused:
            if refused.code in FOR_GOOD:
                forget_ballot(self.path, waiting.survey)
            raise
        with self._alone():
            write(self._answered, "".join(f"{one}\n" for one in sorted({*self._done(), made.id})))
        forget_ballot(self.path, waiting.survey)
        return ready

    @property
    def spent(self) -> Fraction:
        """Return the total epsilon of all ballots that this device sent, over all surveys."""
        return sum(self._costs().values(), Fraction(0))

    def _note(self, made: Published, waiting: UnsentBallot) -> None:
        """Store the report's epsilon before it is sent; sending it again counts it once.

        The entry is keyed by the blinded token, which can't be linked to the report. The report's
        mark (its code in the public list) would show to a thief of this device which public report
        is the owner's.
        """
        parts = read_report(made, waiting.said)
        cost = sum((made.costs[one.question] for one in parts), Fraction(0))
        ballot = hashlib.sha256(waiting.blinded).hexdigest()[:16]
        with self._alone():
            costs = {**self._costs(), f"{made.id} {ballot}": cost}
            write(self._spent, json.dumps({name: str(one) for name, one in costs.items()}))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold an exclusive file lock while these files are read and rewritten.

        Without it, two processes could overwrite each other's records, and one device could answer
        two waves that differ.
        """
        make_folder(self.path.parent)
        lock = self.path.with_name(f"{self.path.name}.lock")
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _costs(self) -> dict[str, Fraction]:
        what = "what this device has given away"
        text = kept_text(self._spent, what)
        if text is None:
            return {}
        with contextlib.suppress(ValueError, AttributeError, ZeroDivisionError, RecursionError):
            return {str(name): Fraction(str(one)) for name, one in json.loads(text).items()}
        raise unreadable(self._spent, what)

    def _check_first(self, survey: str) -> None:
        """Refuse to answer a survey that this device has already answered.

        If two people with the same answers used one device, it would send equal reports.
        """
        if survey in self._done():
            # the file was left by a crash after the ballot was counted
            forget_ballot(self.path, survey)
            raise Refused(
                "not-allowed",
                "This device has already answered this survey.",
                "If you are another person, use a device file of your own (in a shell: --device).",
            )

    def _check_none_left(self, survey: str) -> None:
        """Refuse a survey to which this device has already sent a ballot.

        The check reads the stored epsilons of sent ballots. So it works even if other files of the
        device are lost.
        """
        if any(name.startswith(f"{survey} ") for name in self._costs()):
            raise Refused(
                "not-allowed",
                "This device has already sent a ballot for this survey.",
                "If you are another person, use a device file of your own (in a shell: --device).",
            )

    def _check_waves(self, made: Published) -> None:
        """Refuse a wave that differs from the answered ones, and any wave if the record is lost.

        A wave is one survey of a series. Without the record each wave would look like the first. So
        the device creates the record at its first ballot.
        """
        waves = self.device().waves or {}
        if made.survey.series and self._has_answered and not waves_at(self.path).exists():
            raise Refused(
                "not-allowed",
                f"The file {waves_at(self.path)} is missing. It records which surveys of a "
                "series this device has answered.",
                f"Restore this file from a backup. {ANOTHER}",
            )
        check_wave(made, waves)

    def _done(self) -> list[str]:
        """Return the ids of the surveys that this device has answered. Refuse a damaged file."""
        what = "which surveys this device has answered"
        text = kept_text(self._answered, what)
        if text is not None and not _IDS.fullmatch(text):
            raise unreadable(self._answered, what)
        return (text or "").split()

    def _secret(self) -> bytes:
        """Return the secret from which the device derives its noise; create it once, privately."""
        found, is_private = b"", False
        with contextlib.suppress(OSError):
            if not self.path.exists():
                self._check_new()
                self._make()
            found = self.path.read_bytes()
            is_private = not self.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if len(found) != SECRET_BYTES or not is_private:
            raise Refused(
                "not-allowed",
                f"The file {self.path} does not contain a device's secret key, or other users "
                "may read it.",
                "Make it private (chmod 600), or use another file (in a shell: --device).",
            )
        return found

    def _check_new(self) -> None:
        """Refuse to create a new secret next to the records of an older one.

        A new secret would draw new noise for the same questions.
        """
        there = [
            path for path in (self._answered, self._spent, waves_at(self.path)) if path.exists()
        ]
        if there and not self.path.exists():  # unless another process has just created it
            raise Refused(
                "not-allowed",
                f"The secret key of this device ({self.path}) is missing, but its answers "
                f"({there[0].name}) are still there.",
                f"Restore the secret key from a backup. {ANOTHER}",
            )

    def _make(self) -> None:
        """Write a new secret durably and atomically. Never overwrite an existing secret."""
        make_folder(self.path.parent)
        # the draft has a random name, so that two processes do not share it
        secret, name = self.draw(SECRET_BYTES), self.draw(8).hex()
        draft = on_disk(self.path.with_name(f"{self.path.name}.{name}"), secret)
        with contextlib.suppress(FileExistsError):  # another process was first: keep its secret
            os.link(draft, self.path)
        draft.unlink()

    @property
    def _has_answered(self) -> bool:
        return self._answered.exists() or self._spent.exists()

    @property
    def _answered(self) -> Path:
        return self.path.with_name(f"{self.path.name}.answered")

    @property
    def _spent(self) -> Path:
        return self.path.with_name(f"{self.path.name}.spent")
