"""What a worker says of a source that it cannot prepare, as the owner is told it."""

from __future__ import annotations

from sfumato.core.refusal import Refused


def items(value: object) -> list[object]:
    """Return the list of a message, or none."""
    return value if isinstance(value, list) else []


def missing(path: str) -> Refused:
    """Return the refusal of a file that is not there."""
    return Refused("source-unreadable", f"There is no file {path!r}.", "Give a file's path.")


def stopped() -> Refused:
    """Return the refusal of what a worker was stopped at."""
    return Refused(
        "source-too-large",
        "The preparation needed more memory or time than a worker may use.",
        "Split the source, or let the engine use more.",
    )


def unreadable() -> Refused:
    """Return the refusal of what a worker could not read, without a word of what it holds."""
    return Refused(
        "source-unreadable",
        "The source is not like its name and the card say, or is damaged.",
        "CSV and TSV are UTF-8 with one header line and as many cells in every line.",
    )


def refused_by_worker(said: object) -> Refused:
    """Return the worker's own refusal, which it says in three constant texts."""
    code, cause, next_step = (str(part) for part in items(said))
    return Refused(code, cause, next_step)
