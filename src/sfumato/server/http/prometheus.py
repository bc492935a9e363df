"""Format the service's metrics in the text format of Prometheus.

All names and labels come from closed lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

PROMETHEUS: Final = "text/plain; version=0.0.4"


def prometheus(found: Mapping[str, Any]) -> str:  # Any: JSON of our own door
    """Return the service's metrics in the text format of Prometheus.

    Args:
        found: The result of the verb `metrics`.
    """
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _said("calls_total", "counter", "Calls that ended, by verb and outcome.")
    for one in found["calls"]:
        yield _number("calls_total", one["count"], verb=one["verb"], outcome=one["outcome"])
    yield from _said("door_started_seconds", "gauge", "When the door process began.")
    yield _number("door_started_seconds", found["began"])
    yield from _times(found.get("took", ()))
    yield from _queues(found.get("queues", ()))
    if "ledger" in found:
        yield from _state(found)


def _times(took: Any) -> Iterator[str]:
    yield from _said("call_seconds", "histogram", "How long verbs took that read no row.")
    for one in took:
        for bound, count in one["within"]:
            yield _number("call_seconds_bucket", count, verb=one["verb"], le=f"{bound:g}")
        yield _number("call_seconds_bucket", one["calls"], verb=one["verb"], le="+Inf")
        yield _number("call_seconds_sum", one["seconds"], verb=one["verb"])
        yield _number("call_seconds_count", one["calls"], verb=one["verb"])


def _queues(queues: Any) -> Iterator[str]:
    for name, kind, what, help_ in (
        ("at_work", "gauge", "at_work", "Places that are taken, by kind of work."),
        ("waiting", "gauge", "waiting", "Calls that wait for a place, by kind of work."),
        ("queue_refused_total", "counter", "refused", "Calls for which no place was left to wait."),
    ):
        yield from _said(name, kind, help_)
        for one in queues:
            yield _number(name, one[what], queue=one["queue"])


def _state(found: Mapping[str, Any]) -> Iterator[str]:
    ledger, anchor, frozen = found["ledger"], found["anchor"], found["data_sets"]
    for name, kind, value, help_ in (
        ("ready", "gauge", not found["missing"], "Whether the service can charge and read."),
        ("ledger_frozen", "gauge", ledger["frozen"], "Whether the ledger takes no charge."),
        ("anchor_there", "gauge", anchor["there"], "Whether the anchor can be read."),
        ("data_sets", "gauge", frozen["all"], "Data sets of the vault."),
        ("data_sets_frozen", "gauge", frozen["frozen"], "Data sets that their owners froze."),
    ):
        yield from _said(name, kind, help_)
        yield _number(name, int(value))
    yield from _said("anchor_behind_entries", "gauge", "Entries that the anchor has not seen.")
    if anchor["behind"] is not None:
        yield _number("anchor_behind_entries", anchor["behind"])
    yield from _said("disk_free_bytes", "gauge", "Free bytes, rounded down to a power of two.")
    for one in found["disks"]:
        yield _number("disk_free_bytes", one["free"], place=one["place"])


def _said(name: str, kind: str, help_: str) -> tuple[str, str]:
    return f"# HELP sfumato_{name} {help_}", f"# TYPE sfumato_{name} {kind}"


def _number(name: str, value: float, **labels: str) -> str:
    inner = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"sfumato_{name}{{{inner}}} {value}" if inner else f"sfumato_{name} {value}"
