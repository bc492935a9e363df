"""Which series a device has answered, and about which lasting answers: as the page keeps it.

With `ever` all waves of a series tell no more than was promised because they are about the same
lasting answers. A wave that asks otherwise would have lasting answers of its own, and tell as much
again; so a device that has answered one kind answers no other, whatever a house publishes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.features.surveys.ballot import Published
from sfumato.features.surveys.device_file_reader import kept_text, unreadable


@dataclass(frozen=True)
class Wave:
    """What was answered of a series: its lasting answers, and whether any of them was of `ever`."""

    memos: str  # none of a survey's, once several kinds were answered
    lasts: bool


Waves = Mapping[str, Wave]


def check_wave(made: Published, known: Waves) -> None:
    """Refuse a wave that asks otherwise than those that were answered."""
    before = known.get(_series(made))
    if before is None or before.memos == _memos(made):
        return
    if before.lasts or made.survey.ever is not None:
        raise Refused(
            "bad-survey",
            "This wave asks otherwise than the one that this device has answered.",
            "It could tell more of you than was promised, so nothing is sent. Ask who invited you.",
        )


def with_wave(made: Published, known: Waves) -> dict[str, Wave]:
    """Return what is known once this survey is answered, too."""
    if not made.survey.series:
        return dict(known)
    memos = _memos(made)
    before = known.get(_series(made), Wave(memos, lasts=False))
    same = memos if before.memos == memos else ""
    wave = Wave(same, lasts=before.lasts or made.survey.ever is not None)
    return {**known, _series(made): wave}


def kept_waves(device: Path) -> dict[str, Wave]:
    """Return what is kept beside a device's secret; what cannot be read is no ground to go on."""
    text = kept_text(waves_at(device), "what this device has answered")
    if text is None:
        return {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kept = json.loads(text)
        return {name: Wave(str(one["memos"]), bool(one["lasts"])) for name, one in kept.items()}
    raise unreadable(waves_at(device), "what this device has answered")


def waves_text(waves: Waves) -> str:
    """Return it as a device keeps it."""
    return json.dumps({name: asdict(one) for name, one in waves.items()})


def waves_at(device: Path) -> Path:
    """Return where it lies: beside the secret."""
    return device.with_name(f"{device.name}.series")


def _series(made: Published) -> str:
    return json.dumps([made.survey.asks, made.survey.series])


def _memos(made: Published) -> str:
    return " ".join(made.lasting)
