"""Names of programs' own environments: locked libraries, a folder, or an image, by digest.

A name consists of the kind and the digest of the source. This module reads no file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused

LOCK, FOLDER, IMAGE = "lock", "folder", "image"
KINDS: Final = (LOCK, FOLDER, IMAGE)
NONE: Final = ""  # the name for no own environment: only the base libraries
MAX_LOCK: Final = 1_000_000  # most characters of a lock file
_NAME: Final = re.compile(rf"({'|'.join(KINDS)})-[0-9a-f]{{64}}")
_PINNED: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)"
    r"(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)
_BESIDE: Final = "+"  # separates the base digest from the name of the own environment


@dataclass(frozen=True)
class ImageFacts:
    """What an image says about itself; empty for a lock file or a folder of modules."""

    entry: tuple[str, ...] = ()  # the entry point
    settings: tuple[str, ...] = ()  # environment variables as NAME=VALUE
    through: tuple[str, ...] = ()  # the wrapper command that starts programs
    folder: str = ""  # the working directory
    user: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    manifest: str = ""  # the digest of the manifest, and that of the configuration
    config: str = ""
    source: str = ""  # the name at the registry from which it was pulled


@dataclass(frozen=True, kw_only=True)
class OwnEnvironment(ImageFacts):
    """A program's own environment (packages or image) that the owner added on this machine."""

    name: str
    megabytes: int  # megabytes of memory for the copy in each sandbox
    contents: str  # digest of all its files at the time when it was added
    said: str = ""  # a comment by the person who added it

    @property
    def kind(self) -> str:
        """Return the kind of the environment: lock, folder or image."""
        return self.name.partition("-")[0]


def is_name(text: object) -> bool:
    """Return True if a value has the form of an environment's name."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_image(environment: str) -> bool:
    """Return True if an environment digest, made by `bound`, contains an image."""
    return own_of(environment).startswith(f"{IMAGE}-")


def kind_and_digest(name: str) -> tuple[str, str]:
    """Split an environment's name into its kind and digest."""
    kind, _, digest = name.partition("-")
    return kind, digest


def read_own(text: object) -> str:
    """Read the name of the environment that a program brings, or NONE; refuse a malformed name."""
    if text is None or text == NONE:
        return NONE
    if not isinstance(text, str) or not is_name(text):
        raise bad_environment("its name must be its kind and 64 hexadecimal digits")
    return text


def bound(house: str, own: str) -> str:
    """Join the base environment's digest (`house`) and the name of a program's own environment.

    The text is hashed with a program, so that a changed environment gives another program digest.
    """
    return f"{house}{_BESIDE}{own}" if own else house


def own_of(environment: str) -> str:
    """Return the name of a program's own environment from a text that `bound` has made."""
    return environment.partition(_BESIDE)[2]


def read_lock(text: str) -> tuple[str, ...]:
    """Parse a locked requirements file, in which every line has a version and hashes; or refuse.

    Options, URLs, paths and markers are refused, so the lock cannot choose where files come from.
    """
    if len(text) > MAX_LOCK or not text.isascii():
        raise bad_environment(f"a lock must be at most {MAX_LOCK:,} ASCII letters")
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = (re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines())
    found = tuple(" ".join(line.split()) for line in lines if line.strip())
    for line in found:
        if _PINNED.fullmatch(line) is None:
            raise bad_environment(
                "every line of a lock must be NAME==VERSION with a --hash=sha256:, and nothing else"
            )
    if not found:
        raise bad_environment("the lock is empty")
    return found


def bad_environment(says: str) -> Refused:
    """Return the refusal of an invalid program environment."""
    return Refused(
        "bad-environment",
        f"This is not an environment for programs: {says}.",
        "See docs/how-to/pipelines.md on a program's own environment.",
    )
