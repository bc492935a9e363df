"""The user of an image: its name, its home folder, and what of it a program in a sandbox has."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox.image_user import own_uid_settings
from sfumato.sandbox.oci_image import read_image
from sfumato.sandbox.oci_layers import merged_layers
from support.container_images import PYTHON, layout, link, member, python_layer, shell_layer, tar_of
from support.sandbox_blocks import needs_bubbles
from support.tree_images import RESULT, Image

ACCOUNT_LINES = """root:x:0:0:root:/root:/bin/bash
node:x:1000:1000::/home/node:/bin/sh
tool:x:423:7:A tool,,,:/home/tool:/bin/bash
odd line
"""
GROUP_LINES = "root:x:0:\nstaff:x:7:node\nnode:x:1000:\nothers:x:9:\n"
ACCOUNTS = [member("etc/passwd", ACCOUNT_LINES.encode()), member("etc/group", GROUP_LINES.encode())]
HOME = [member("home/tool/.rc", b"rc", mode=0o755), link("home/tool/l", ".rc")]
USER = {"USER": "tool", "LOGNAME": "tool", "HOME": "/home/tool"}


def read(user: str, settings: dict[str, str] | None = None) -> tuple[object, ...]:
    """Return the settings, /etc/passwd and /etc/group of an image with this user."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        layers = [tar_of([*ACCOUNTS, *HOME])]
        digest = layout(place / "layout", layers, user=user, settings=settings)
        image = read_image(place / "layout", digest, place / "files")
        assert image.user == user
        found = dict(one.split("=", 1) for one in image.settings)
        files = [(place / "files/etc" / name).read_text() for name in ("passwd", "group")]
        return found, *files


@pytest.mark.parametrize("user", ["tool", "423", "tool:staff", "tool:7", "423:staff"])
def test_the_user_of_an_image_has_the_uid_that_its_program_sees(user: str) -> None:
    settings, passwd, group = read(user)
    assert settings == USER
    assert str(passwd).splitlines() == [
        "tool:x:1000:1000:A tool,,,:/home/tool:/bin/bash",
        "root:x:0:0:root:/root:/bin/bash",
        "node:x:1000:1000::/home/node:/bin/sh",
        "odd line",
    ]
    assert str(group).splitlines() == [
        "staff:x:1000:node", "root:x:0:", "node:x:1000:", "others:x:9:",
    ]  # fmt: skip


def test_the_group_that_an_image_names_comes_first() -> None:
    assert str(read("tool:others")[2]).startswith("others:x:1000:\nroot")


def test_a_number_without_a_name_stays_without() -> None:
    assert read("77") == ({}, ACCOUNT_LINES, GROUP_LINES)
    assert read("77:78") == ({}, ACCOUNT_LINES, GROUP_LINES)
    assert read("77:staff")[0] == {}


@pytest.mark.parametrize("user", ["", "root", "0", "root:staff"])
def test_root_is_nobodys_name(user: str) -> None:
    assert read(user) == ({}, ACCOUNT_LINES, GROUP_LINES)


def test_what_the_image_sets_itself_comes_before_its_user() -> None:
    assert read("tool", settings={"HOME": "/etc"})[0] == {**USER, "HOME": "/etc"}


def test_a_user_or_group_that_the_image_lacks_is_refused() -> None:
    for user, word in (("nobody", "user 'nobody'"), ("tool:nobody", "group 'nobody'")):
        with pytest.raises(Refused, match=word):
            read(user)


def test_accounts_that_are_links_or_missing_name_nobody(tmp_path: Path) -> None:
    (tmp_path / "layer").write_bytes(tar_of([link("etc/passwd", "/etc/shadow")]))
    (tmp_path / "bytes").mkdir()
    with (tmp_path / "layer").open("r+b") as layer:
        tree = merged_layers([nullcontext(layer)], tmp_path / "bytes")
    assert own_uid_settings("77", tree) == {}
    with pytest.raises(Refused, match="not in the image's /etc/passwd"):
        own_uid_settings("tool", tree)


# --- what a program has of it ---------------------------------------------------------------------

LOOK = """#!/usr/bin/env python3
import getpass, grp, json, os, pwd, sys
home, found = os.path.expanduser("~"), {}
account = pwd.getpwuid(os.getuid())
found["account"] = [account.pw_name, account.pw_dir, grp.getgrgid(os.getgid()).gr_name]
found["names"] = [os.environ.get("USER"), getpass.getuser(), home]
found["files"] = sorted(os.listdir(home))[:5]
try:
    with open(f"{home}/.rc", "a") as file:
        file.write("!")
    os.mkdir(f"{home}/more")
    found["home"] = open(f"{home}/l").read()
except OSError as refused:
    found["home"] = type(refused).__name__
os.makedirs(os.environ["XDG_CACHE_HOME"])
json.dump(found, open(f"{sys.argv[2]}/answer.txt", "w"))
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


def seen(place: Path, more: bytes, settings: dict[str, str]) -> object:
    place.mkdir()
    layers = [shell_layer(), python_layer(slim=False), tar_of([*ACCOUNTS, *HOME]), more]
    image = Image(place, layers, {**PYTHON, **settings}, user="tool")
    try:
        for _ in range(2):  # the second block sees nothing of what the first has written
            tried = image.tried(LOOK)
            assert tried.ending == "exit status 0", tried.printed.decode()
        return json.loads(bytes.fromhex(json.loads(tried.output)[RESULT]))
    finally:
        image.pool.close()
        image.kept.remove(image.own)


ACCOUNT = {"account": ["tool", "/home/tool", "staff"], "names": ["tool", "tool", "/home/tool"]}


@needs_bubbles
def test_a_program_has_the_name_and_a_copy_of_the_home_of_its_user(folder: Path) -> None:
    assert seen(folder / "small", tar_of([]), {}) == {
        **ACCOUNT, "files": [".rc", "l"], "home": "rc!",
    }  # fmt: skip


@needs_bubbles
@pytest.mark.parametrize("which", ["large", "device"])
def test_a_large_home_can_only_be_read(which: str, folder: Path) -> None:
    home = "/dev" if which == "device" else "/home/tool"
    found = seen(folder / which, tar_of([member("home/tool/z", bytes(1 << 20))]), {"HOME": home})
    assert isinstance(found, dict)
    assert found["account"] == ACCOUNT["account"]
    assert found["names"] == ["tool", "tool", home]
    assert found["home"] in ("OSError", "PermissionError")
