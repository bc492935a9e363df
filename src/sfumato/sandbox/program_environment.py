"""What a program brings along to run with: locked libraries, a folder, or an image, by digest.

Its name has its kind and the digest of what it was made from. Nothing here looks at a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused

LOCK, FOLDER, IMAGE = "lock", "folder", "image"
KINDS: Final = (LOCK, FOLDER, IMAGE)
NONE: Final = ""  # the name of no environment of one's own: the house's libraries, and no more
MOST_LOCK: Final = 1_000_000  # letters
_NAME: Final = re.compile(rf"({'|'.join(KINDS)})-[0-9a-f]{{64}}")
_PINNED: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*)"
    r"(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)
_BESIDE: Final = "+"  # between the house's digest and the name of one's own


@dataclass(frozen=True)
class OwnEnvironment:
    """One that has been added here."""

    name: str
    megabytes: int  # of memory that each bubble's copy needs
    contents: str  # the digest of all its files as they were laid down
    entry: tuple[str, ...] = ()  # of an image: what it runs by itself
    settings: tuple[str, ...] = ()  # of an image: NAME=VALUE, from its makers
    said: str = ""  # by whoever added it, for people
    through: tuple[str, ...] = ()  # of an image: what its programs are started through

    @property
    def kind(self) -> str:
        """Return what it was made from."""
        return self.name.partition("-")[0]


def is_name(text: object) -> bool:
    """Say whether that could name an environment."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_image(environment: str) -> bool:
    """Say whether programs with that digest are run in an image of their own."""
    return own_of(environment).startswith(f"{IMAGE}-")


def kind_and_digest(name: str) -> tuple[str, str]:
    """Return what a name of an environment says: what it was made from, and of which bytes."""
    kind, _, digest = name.partition("-")
    return kind, digest


def read_own(text: object) -> str:
    """Return the name of the environment that a manifest asks for, or of none; or refuse."""
    if text is None or text == NONE:
        return NONE
    if not isinstance(text, str) or not is_name(text):
        raise bad_environment("its name is its kind and 64 hexadecimal digits")
    return text


def bound(house: str, own: str) -> str:
    """Return the one text that stands for both; a program's digest has it in it."""
    return f"{house}{_BESIDE}{own}" if own else house


def own_of(environment: str) -> str:
    """Return the name of one's own in such a text."""
    return environment.partition(_BESIDE)[2]


def read_lock(text: str) -> tuple[str, ...]:
    """Return the lines of a locked requirements file, each pinned by version and hash; or refuse.

    No option, address, path or marker: where files come from is whoever installs them to say.
    """
    if len(text) > MOST_LOCK or not text.isascii():
        raise bad_environment(f"a lock is at most {MOST_LOCK:,} ASCII letters")
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = (re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines())
    found = tuple(" ".join(line.split()) for line in lines if line.strip())
    for line in found:
        if _PINNED.fullmatch(line) is None:
            raise bad_environment(
                "every line of a lock is NAME==VERSION with a --hash=sha256:, and nothing else"
            )
    if not found:
        raise bad_environment("the lock names nothing")
    return found


def bad_environment(says: str) -> Refused:
    """Return the refusal of something that programs cannot run with."""
    return Refused(
        "bad-environment",
        f"This is no environment for programs: {says}.",
        "See docs/pipelines.md, environments of a program's own.",
    )
