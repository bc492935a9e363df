"""Output checking of programs that bring an environment: an image, or Python packages."""

from __future__ import annotations

import base64
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from support.container_images import PYTHON, layout, member, shell_layer, tar_of
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run, write_csv

pytestmark = needs_bubbles
CARD: Final = """
unit = "who"
people = "town"
budget = { epsilon = 10, delta = 0 }
[ask]
who = ["researchers"]
[airlock]
reviewers = ["rita", "rolf"]
smallest = 10
[columns.site]
type = "text"
keys = ["north", "south", "east"]
"""
SITES: Final = ["north"] * 30 + ["south"] * 26 + ["east"] * 4


def png() -> bytes:
    """Return a picture of one grey pixel."""

    def part(name: bytes, body: bytes) -> bytes:
        check = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = part(b"IHDR", head) + part(b"IDAT", zlib.compress(b"\0\x7f")) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + pixels


PIXEL: Final = "".join(f"\\{letter:03o}" for letter in png())
# counts in pipes, so its block is a tree of processes; there is no Python in the image
IN_SHELL: Final = f"""#!/bin/bash
printf 'site,n\\n' > $2/table.csv
cut -f2 $1/participants.tsv | tail -n +2 | sort | uniq -c | while read n site
do printf '%s,%d\\n' $site $n >> $2/table.csv
done
printf '{PIXEL}' > $2/figure.png
ln -s /etc/group $2/link.txt
echo unasked > $2/unasked.txt
(sleep 60; printf x > $2/late.txt) &
exit 3
"""
FILES: Final = [
    {"path": "table.csv", "by": ["site"], "count": "n"},
    {"path": "figure.png"}, {"path": "link.txt"}, {"path": "late.txt"},
]  # fmt: skip


@pytest.fixture(scope="module")
def vault() -> Iterator[OpenVault]:
    with tempfile.TemporaryDirectory() as folder:
        rows = [(f"canary-{n:03d}", site) for n, site in enumerate(SITES)]
        source = write_csv(Path(folder) / "t.csv", ("who", "site"), rows)
        with sfumato.open(make_vault(Path(folder))) as made:
            made.add("town", source, card(CARD))
            made.enrol("ada", "researchers")
            hurry(made)
            yield made
            for one in made.environments.all():
                made.environments.remove(one.name)


@pytest.fixture(scope="module")
def image(vault: OpenVault) -> str:
    """Return the name of an image with a shell, whose own program writes one table."""
    own = b"#!/bin/bash\nprintf 'site,n\\nnorth,30\\n' > $2/table.csv\n"
    layers = [shell_layer(), tar_of([member("bin/own", own, mode=0o755)])]
    with tempfile.TemporaryDirectory() as place:
        digest = layout(Path(place), layers, settings=PYTHON, packed=False, entry=["/bin/own"])
        name = vault.environments.add_image(Path(place), digest, "a shell").name
    assert name == digest.replace("sha256:", "image-")
    return name


def of(vault: OpenVault, user: str) -> OpenVault:
    return OpenVault(vault.house, user)


def submitted(vault: OpenVault, **more: Any) -> str:
    body = {"data_set": "town", "files": FILES[:1], "cpu_s": 9, **more}
    return str(of(vault, "ada").call("submit-airlock", body)["request"])


def shown(vault: OpenVault, request: str) -> Any:
    of(vault, "owner").call("run-airlock", {"request": request})
    return of(vault, "rita").call("show-airlock", {"request": request})


def files_of(seen: Any) -> dict[str, bytes]:
    return {one["path"]: base64.b64decode(one["base64"]) for one in seen["files"]}


def refused(vault: OpenVault, **more: Any) -> Refused:
    with pytest.raises(Refused) as found:
        submitted(vault, **more)
    return found.value


def test_a_program_in_an_image_makes_a_picture_that_is_checked_and_leaves(
    vault: OpenVault, image: str
) -> None:
    source = IN_SHELL.replace("\n", "\r\n")  # as a browser sends it; no shell would run it
    request = submitted(vault, source=source, environment=image, files=FILES)
    seen = shown(vault, request)
    # no link is followed, and nothing that a process would write later
    assert files_of(seen) == {
        "figure.png": png(), "table.csv": b"site,n\neast,4\nnorth,30\nsouth,26\n",
    }  # fmt: skip
    checks = {(one["path"], one["check"]) for one in seen["findings"]}
    assert checks >= {
        ("table.csv", "small-group"),  # of our own count, in our own Python
        ("figure.png", "eyes"), ("link.txt", "missing"), ("late.txt", "missing"),
    }  # fmt: skip
    assert not {one for one in checks if one[1] in ("kind", "miscounted", "unmeasured")}
    assert 'note of the operator: "a shell"' in seen["environment_lines"]
    for user in ("rita", "rolf"):
        vote = {"request": request, "says": "release", "seal": seen["seal"], "draft": 1}
        of(vault, user).call("vote-airlock", vote)
    of(vault, "rita").call("release-airlock", {"request": request})
    left = of(vault, "ada").call("fetch-airlock", {"request": request})
    assert files_of(left)["figure.png"] == png()


def test_an_image_has_a_program_of_its_own(vault: OpenVault, image: str) -> None:
    airlock = of(vault, "ada")["town"].airlock
    request = str(airlock.submit("", ["table.csv"], environment=image)["request"])
    assert files_of(shown(vault, request)) == {"table.csv": b"site,n\nnorth,30\n"}


def test_files_that_do_not_fit_together_are_left_out_whole(vault: OpenVault, image: str) -> None:
    source = (
        "#!/bin/bash\n"
        "for name in a b c; do printf '%01000000d' 0 > $2/$name.txt; done\n"
        "echo small > $2/d.txt\n"
    )
    names = [f"{name}.txt" for name in "abcd"]
    files = [{"path": name} for name in names]
    request = submitted(vault, source=source, environment=image, files=files)
    found = {path: len(text) for path, text in files_of(shown(vault, request)).items()}
    assert found == {"a.txt": 1_000_000, "b.txt": 1_000_000, "d.txt": 6}


def test_a_python_program_brings_packages(vault: OpenVault, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "brought.py").write_text("SITE = 'west'\n")
    name = vault.environments.add_folder(tmp_path / "own", "").name
    source = (
        "import sys\nfrom brought import SITE\n"
        "open(sys.argv[2] + '/table.csv', 'w').write(f'site,n\\n{SITE},30\\n')\nraise ValueError\n"
    )
    request = submitted(vault, source=source, environment=name)
    assert files_of(shown(vault, request)) == {"table.csv": b"site,n\nwest,30\n"}
    alone = submitted(vault, source=source)
    assert files_of(shown(vault, alone)) == {}


def test_an_environment_that_is_gone_or_another_does_not_run(
    vault: OpenVault, image: str, tmp_path: Path
) -> None:
    assert refused(vault, source="x", environment="image-" + "a" * 64).code == "bad-environment"
    assert refused(vault, source="x", environment="debian:12").code == "bad-environment"
    assert refused(vault, source="").code == "bad-airlock"
    digest = layout(tmp_path / "one", [tar_of([member("run", b"x")])], entry=["/run"])
    name = vault.environments.add_image(tmp_path / "one", digest, "").name
    request = submitted(vault, source="", environment=name)
    vault.environments.remove(name)
    with pytest.raises(Refused, match="no environment") as found:
        of(vault, "owner").call("run-airlock", {"request": request})
    assert found.value.code == "bad-environment"
    told = of(vault, "rita").call("show-airlock", {"request": request})
    assert (told["state"], told["environment_lines"]) == ("waiting", [])
    other = vault.house.desk.airlock.store.find(submitted(vault, source="x", environment=image))
    assert other is not None
    program = json.loads(other.program)
    assert program["environment"].endswith(f"+{image}")  # so it is part of the digest
    program["environment"] = f"of last year+{image}"
    changed = {**other.__dict__, "program": json.dumps(program), "revision": other.revision + 1}
    assert vault.house.desk.airlock.store.change(type(other)(**changed))
    with pytest.raises(Refused, match="environment or libraries"):
        of(vault, "owner").call("run-airlock", {"request": other.id})


def test_an_image_that_cannot_run_here_is_refused_before_it_is_written_down(
    vault: OpenVault, image: str
) -> None:
    request = submitted(vault, source="", environment=image)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # a block's keeper needs another one
    try:
        with pytest.raises(Refused) as found:
            of(vault, "owner").call("run-airlock", {"request": request})
    finally:
        os.sched_setaffinity(0, processors)
    assert found.value.code == "sandbox-missing"
    told = of(vault, "owner").call("show-airlock", {"request": request})
    assert told["state"] == "waiting"


def test_a_command_names_the_environment(vault: OpenVault, image: str, tmp_path: Path) -> None:
    (tmp_path / "figure.sh").write_text(IN_SHELL)
    said = ("--user", "ada", "airlock", "submit", "town")
    files = ("--file", "figure.png", "--environment", image, "--memory", "512")
    made = run(vault.house.folder, *said, str(tmp_path / "figure.sh"), *files)
    assert made.returncode == 0, made.stderr
    assert f"in {image}" in made.stdout
    (request,) = [word for word in made.stdout.split() if len(word) == 16][:1]
    found = run(vault.house.folder, "airlock", "show", request)
    assert 'environment: note of the operator: "a shell"' in found.stdout
    own = run(vault.house.folder, *said, *files)
    assert own.returncode == 0, own.stderr
    none = run(vault.house.folder, *said, "--file", "figure.png")
    assert "only an image has a program of its own" in none.stderr
