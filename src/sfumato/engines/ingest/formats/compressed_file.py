"""Unpack a text file that is compressed with gzip or zstd."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.source_errors import unreadable
from sfumato.system.optional_packages import extra_module

_PIECE: Final = 1 << 20
SAMPLE: Final = 8 << 20  # the first bytes, if only a sample of the rows is wanted
_TIMES: Final = 200  # a file that becomes larger than that is made to fill the disk
_LEAST: Final = 1 << 30


def unpack(source: str, target: Path, *, is_sample: bool) -> None:
    """Write the unpacked file to `target`; of a sample, the whole lines of the first megabytes."""
    most = most_bytes(Path(source).stat().st_size)
    try:
        with _opened(source) as packed, target.open("wb") as file:
            if is_sample:
                text = packed.read(SAMPLE)
                file.write(text if len(text) < SAMPLE else text[: text.rfind(b"\n") + 1])
                return
            while piece := packed.read(_PIECE):
                file.write(piece)
                most -= len(piece)
                if most < 0:
                    raise too_large()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise _damaged() from None
    except OSError as error:
        if error.errno is not None:  # not of the format
            raise
        raise _damaged() from None


def most_bytes(packed: int) -> int:
    """Return how many bytes a file of `packed` bytes may become, so that it cannot fill a disk."""
    return max(_LEAST, _TIMES * packed)


def too_large() -> Refused:
    """Return the refusal of a file that becomes larger than that."""
    return unreadable(
        "The compressed file unpacks to more than 200 times its size.",
        "Unpack it yourself, and add the unpacked file.",
    )


def _opened(source: str) -> Any:
    if source.casefold().endswith(".gz"):
        return gzip.open(source, "rb")
    arrow = extra_module("pyarrow", "files")
    return arrow.input_stream(source, compression="zstd")


def _damaged() -> Refused:
    return unreadable(
        "The compressed file is damaged, cut off, or of another format than its name says.",
        "Compress it again, or add the unpacked file.",
    )
