"""Record which series of surveys a device has answered, and refuse waves that differ.

A wave is one survey of a series, which asks the same questions again. With `ever`, all waves of a
series keep within the promised epsilon because they share their permanent responses. A wave with
other questions would have permanent responses of its own and spend that epsilon again. So a device
answers one set of questions per series, whatever the server publishes. The respondent's page keeps
the same record.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.features.surveys.device_file_reader import kept_text, unreadable
from sfumato.features.surveys.randomised_report import Published


@dataclass(frozen=True)
class Wave:
    """The record, on a device, of one series of surveys that it answered.

    `memos` identifies the answered questions and their permanent responses. `lasts` is True if any
    wave (survey of the series) had `ever`, an epsilon for all waves together.
    """

    memos: str  # empty once the device has answered surveys of the series with different memos
    lasts: bool


Waves = Mapping[str, Wave]


def check_wave(made: Published, known: Waves) -> None:
    """Refuse a wave (survey of a series) with other questions than this device has answered.

    Waves may differ only if none has `ever`, an epsilon for all waves together.
    """
    before = known.get(_series(made))
    if before is None or before.memos == _memos(made):
        return
    if before.lasts or made.survey.ever is not None:
        raise Refused(
            "bad-survey",
            "This survey belongs to a series, and its questions differ from those that this "
            "device has already answered in it.",
            "Answering could reveal more about you than was promised, so nothing is sent. Ask "
            "the person who invited you.",
        )


def with_wave(made: Published, known: Waves) -> dict[str, Wave]:
    """Return the record of answered series with this survey added.

    A survey that belongs to no series leaves the record as it is.
    """
    if not made.survey.series:
        return dict(known)
    memos = _memos(made)
    before = known.get(_series(made), Wave(memos, lasts=False))
    same = memos if before.memos == memos else ""
    wave = Wave(same, lasts=before.lasts or made.survey.ever is not None)
    return {**known, _series(made): wave}


def kept_waves(device: Path) -> dict[str, Wave]:
    """Read which series of surveys a device has answered; refuse a damaged file."""
    text = kept_text(waves_at(device), "what this device has answered")
    if text is None:
        return {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kept = json.loads(text)
        return {name: Wave(str(one["memos"]), bool(one["lasts"])) for name, one in kept.items()}
    raise unreadable(waves_at(device), "what this device has answered")


def waves_text(waves: Waves) -> str:
    """Return the record of answered series as JSON, as it is stored on the device."""
    return json.dumps({name: asdict(one) for name, one in waves.items()})


def waves_at(device: Path) -> Path:
    """Return the path of the file with the answered series, next to the device's secret."""
    return device.with_name(f"{device.name}.series")


def _series(made: Published) -> str:
    return json.dumps([made.survey.asks, made.survey.series])


def _memos(made: Published) -> str:
    return " ".join(made.lasting)
