"""What programs bring along: pinned, made without running it, and bound to what was approved."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.sandbox import environment_store, shared_libraries
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.environment_store import Environments, fetch_command, install_command
from sfumato.sandbox.ports import BlockJob, SandboxLimits, SandboxStopped
from sfumato.sandbox.program_environment import own_of, read_lock
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from support.container_images import PYTHON, layout, member, python_layer, tar_of
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, write_csv

LIMITS = SandboxLimits(cpu_s=4.0)
CARD = """
unit = "who"
people = "town"
budget = { epsilon = 1000, delta = 0 }
[caps]
user = { epsilon = 1000 }
[ask]
who = ["researchers"]
[columns.height]
type = "integer"
lower = 100
upper = 220
"""


def code_of(act: object) -> str:
    assert callable(act)
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


def wheel(folder: Path, name: str, source: str, version: str = "1.0", binary: bytes = b"") -> str:
    """Write a wheel of one module, and of a binary; return its hash."""
    folder.mkdir(exist_ok=True)
    place = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(f"{name}.py", source)
        if binary:
            made.writestr("fast.so", binary)
        made.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        made.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(place.read_bytes()).hexdigest()


def folder_of(place: Path, **modules: str) -> Path:
    place.mkdir()
    for name, text in modules.items():
        (place / f"{name}.py").write_text(text)
    return place


@pytest.fixture
def kept() -> Iterator[Environments]:
    """Give a place that the uid of a bubble reaches, which pytest's own folders are not."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        made = Environments(Path(place, "own"))
        yield made
        for one in made.all():
            made.remove(one.name)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


@pytest.mark.parametrize("line", [
    "numpy", "numpy==1.0", "numpy>=1 --hash=sha256:" + 64 * "0", "-r other.txt",
    "--index-url https://elsewhere", "./local.whl --hash=sha256:" + 64 * "0",
    "a @ https://elsewhere/a.whl --hash=sha256:" + 64 * "0", "a==1 --hash=md5:" + 64 * "0",
    "a==1 ; python_version > '3' --hash=sha256:" + 64 * "0", "-e .", "",
], ids=range(11))  # fmt: skip
def test_a_lock_pins_every_line_by_hash_and_says_nothing_else(line: str) -> None:
    assert code_of(lambda: read_lock(f"# a lock\n{line}\n")) == "bad-environment"


def test_a_lock_is_read_as_tools_write_it() -> None:
    pinned = (
        f"a==1.0 \\\n    --hash=sha256:{64 * '0'} \\\n    --hash=sha256:{64 * '1'}\n    # via b\n"
    )
    assert read_lock(pinned) == (f"a==1.0 --hash=sha256:{64 * '0'} --hash=sha256:{64 * '1'}",)


def test_pip_is_told_to_check_hashes_and_to_build_nothing() -> None:
    always = [
        "--require-hashes", "--only-binary", ":all:", "--no-deps", "--no-input",
        "--disable-pip-version-check", "--quiet",
    ]  # fmt: skip
    assert fetch_command(Path("lock"), Path("to"))[1:] == [
        "-I", "-m", "pip", "download", *always, "--dest", "to", "--requirement", "lock",
    ]  # fmt: skip
    assert install_command(Path("lock"), Path("to"), Path("from"))[1:] == [
        "-I", "-m", "pip", "install", *always, "--no-index", "--find-links", "from", "--no-compile",
        "--no-warn-script-location", "--target", "to", "--requirement", "lock",
    ]  # fmt: skip


def test_a_wheel_of_another_hash_is_not_installed(
    kept: Environments, wheels: Path, tmp_path: Path
) -> None:
    right = wheel(wheels, "mine", "X = 1")
    (tmp_path / "lock").write_text(f"mine==1.0 --hash=sha256:{64 * '0'}\n")
    assert code_of(lambda: kept.add_lock(tmp_path / "lock")) == "bad-environment"
    assert kept.all() == ()
    assert os.listdir(kept.root) == []
    (tmp_path / "lock").write_text(f"mine==1.0 --hash=sha256:{right}\n")
    made = kept.add_lock(tmp_path / "lock", "mine")
    assert made.name == "lock-" + hashlib.sha256((tmp_path / "lock").read_bytes()).hexdigest()
    assert (kept.files(made.name) / "packages" / "mine.py").read_text() == "X = 1"
    (wheels / "mine-1.0-py3-none-any.whl").unlink()
    assert kept.add_lock(tmp_path / "lock") == made  # offline from here on


def test_a_package_without_a_wheel_is_refused_with_what_to_do(
    kept: Environments, wheels: Path, tmp_path: Path
) -> None:
    wheels.mkdir()
    (wheels / "mine-1.0.tar.gz").write_bytes(b"source")
    lock = locked(tmp_path, hashlib.sha256(b"source").hexdigest())
    with pytest.raises(Refused, match=r"Only wheels are used.* bring an image"):
        kept.add_lock(lock)


def locked(folder: Path, digest: str) -> Path:
    (folder / "lock").write_text(f"mine==1.0 --hash=sha256:{digest}\n")
    return folder / "lock"


def test_wheels_that_would_be_more_than_there_may_be_are_not_unpacked(
    kept: Environments, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = locked(tmp_path, wheel(wheels, "mine", "X = 1", binary=bytes(30_000_000)))
    assert sum(place.stat().st_size for place in wheels.iterdir()) < 1_000_000
    monkeypatch.setattr(environment_store, "_MAX_FOLDER", 20_000_000)
    assert code_of(lambda: kept.add_lock(lock)) == "bad-environment"
    assert os.listdir(kept.root) == []
    monkeypatch.setattr(environment_store, "_MAX_FOLDER", 40_000_000)
    assert kept.add_lock(lock).megabytes >= 28


def test_a_lock_that_is_added_anew_is_the_same_to_the_last_byte(
    kept: Environments, wheels: Path, tmp_path: Path
) -> None:
    """Else every program that was approved with it would wait again."""
    lock = locked(tmp_path, wheel(wheels, "mine", "X = 1"))
    first = kept.add_lock(lock)
    compiled = list((kept.files(first.name) / "packages" / "__pycache__").iterdir())
    assert len(compiled) == 1
    assert b"/env/own/packages/mine.py" in compiled[0].read_bytes()  # and not where it lay here
    kept.remove(first.name)
    assert kept.add_lock(lock) == first


def test_what_was_left_of_one_that_was_removed_is_in_nobodys_way(
    kept: Environments, tmp_path: Path
) -> None:
    made = kept.add_folder(folder_of(tmp_path / "mine", mine="X = 1"))
    left = kept.root / f".gone-{made.name}"  # by somebody who was killed while removing it
    left.mkdir()
    (left / "half").write_text("left")
    kept.remove(made.name)
    assert kept.all() == ()


def test_one_that_somebody_else_adds_meanwhile_is_the_same_one(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = folder_of(tmp_path / "mine", mine="X = 1")
    put = environment_store._is_put
    added: list[bool] = []

    def after_another(draft: Path, place: Path) -> bool:
        if not added:
            added.append(True)
            kept.add_folder(mine)
        return put(draft, place)

    monkeypatch.setattr(environment_store, "_is_put", after_another)
    made = kept.add_folder(mine)
    assert kept.all() == (made,)
    assert os.listdir(kept.root) == [made.name]


def test_no_file_of_a_wheel_is_given_to_the_loader(
    kept: Environments, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = environment().folder / "libs"
    binary = (house / "libz.so.1").read_bytes()  # one that needs another
    seen = tmp_path / "seen"
    loader = tmp_path / "loader"
    loader.write_text(
        f"#!/bin/sh\necho x >> {seen}\n"
        f"printf '\\t{tmp_path}/planted => /etc/hostname (0x1)\\n\\tany.so => /etc/passwd (0x1)\\n'"
    )
    loader.chmod(0o755)
    monkeypatch.setattr(shared_libraries, "LOADER", loader)
    lock = locked(tmp_path, wheel(wheels, "mine", "X = 1", binary=binary))
    files = kept.files(kept.add_lock(lock).name)
    assert not seen.exists()
    assert not (tmp_path / "planted").exists()
    found = set(os.listdir(files / "libs"))
    assert {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"} <= found
    assert found <= set(shared_libraries.RUNTIME)


def test_pip_is_not_taken_from_where_somebody_stands(
    kept: Environments, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = folder_of(tmp_path / "stranger", pip="open('ran', 'w')\nraise SystemExit(0)")
    monkeypatch.chdir(stranger)
    monkeypatch.setenv("PYTHONPATH", str(stranger))
    lock = locked(tmp_path, wheel(wheels, "mine", "X = 1"))
    files = kept.files(kept.add_lock(lock).name)
    assert (files / "packages" / "mine.py").read_text() == "X = 1"
    assert sorted(os.listdir(stranger)) == ["pip.py"]


def test_a_folder_is_named_by_every_file_in_it(kept: Environments, tmp_path: Path) -> None:
    place = folder_of(tmp_path / "folder", a="A = 1", b="B = 2")
    names = {kept.add_folder(place).name}
    (place / "b.py").write_text("B = 3")
    names.add(kept.add_folder(place).name)
    (place / "b.py").rename(place / "c.py")
    names.add(kept.add_folder(place).name)
    (place / "c.py").chmod(0o755)
    names.add(kept.add_folder(place).name)
    (place / "empty").mkdir()
    names.add(kept.add_folder(place).name)
    assert len(names) == 5
    assert {one.name for one in kept.all()} == names


def test_a_folder_with_a_link_is_refused(kept: Environments, tmp_path: Path) -> None:
    place = folder_of(tmp_path / "folder")
    (place / "passwd").symlink_to("/etc/passwd")
    assert code_of(lambda: kept.add_folder(place)) == "bad-environment"
    (place / "passwd").unlink()
    os.mkfifo(place / "pipe")
    assert code_of(lambda: kept.add_folder(place)) == "bad-environment"


@pytest.mark.parametrize("what", ["folder", "file", "pipe"])
def test_a_folder_that_is_changed_while_it_is_copied_gives_nothing_of_others(
    what: str, kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change a name for a link at the moment that it has been looked at, wherever that is."""
    private = folder_of(tmp_path / "private", key="SECRET = 1")
    place = folder_of(tmp_path / "folder")
    (place / "deep").mkdir()
    (place / "deep" / "key.py").write_text("X = 1")
    changed = place / "deep" if what == "folder" else place / "deep" / "key.py"

    done: list[str] = []

    def change() -> None:
        if done:
            return
        done.append(what)
        changed.rename(tmp_path / "aside")
        if what == "pipe":
            os.mkfifo(changed)
        else:
            changed.symlink_to(private if what == "folder" else private / "key.py")

    looks = {name: getattr(os, name) for name in ("lstat", "stat", "scandir")}

    def look(name: str) -> Callable[..., Any]:
        def looked(at: Any, *rest: Any, **more: Any) -> Any:  # Any: as in os
            found = looks[name](at, *rest, **more)
            is_it = (
                os.fsdecode(at) in (changed.name, str(changed))
                if name != "scandir"
                else (at == changed)
            )
            if is_it:
                change()
            return found

        return looked

    for name in looks:
        monkeypatch.setattr(os, name, look(name))
    assert code_of(lambda: kept.add_folder(place)) == "bad-environment"
    monkeypatch.undo()
    assert os.listdir(kept.root) == []


def test_what_has_changed_since_it_was_added_is_not_used(
    kept: Environments, tmp_path: Path
) -> None:
    made = kept.add_folder(folder_of(tmp_path / "folder", a="A = 1"))
    file = kept.files(made.name) / "packages" / "a.py"
    file.chmod(0o644)
    file.write_text("A = 2")
    assert code_of(lambda: kept.files(made.name)) == "bad-environment"
    kept.remove(made.name)
    assert code_of(lambda: kept.remove(made.name)) == "bad-environment"


def test_the_world_reads_it_and_nobody_writes_to_it(kept: Environments, tmp_path: Path) -> None:
    made = kept.add_folder(folder_of(tmp_path / "folder", a="A = 1"))
    for place in (kept.files(made.name), *kept.files(made.name).rglob("*")):
        assert place.stat().st_mode & 0o777 == (0o555 if place.is_dir() else 0o444)
    assert kept.root.stat().st_mode & 0o777 == 0o755


# --- in the sandbox -------------------------------------------------------------------------------


@pytest.fixture
def sandbox(kept: Environments) -> Iterator[SandboxPool]:
    made = SandboxPool(environment, SystemRandomSource(), sleep=lambda _: None, own=kept)
    yield made
    made.close()


def said(sandbox: SandboxPool, own: str, program: dict[str, object], rows: Path) -> float:
    """Return the one number, from 0 to 100, that a block says of the rows."""
    path = "answer.json" if program["kind"] == "function" else "out/answer.json"
    outputs = read_outputs(
        [{"name": "m", "lower": -1, "upper": 100, "step": 1, "path": path, "at": ["m"]}]
    )
    told = {"name": "f", "outputs": ["m"], "paths": [path], **program}
    job = BlockJob(told, (str(rows),), outputs, LIMITS, own=own)
    ran = sandbox._run_blocks(job)
    assert ran is not None
    from sfumato.sandbox.program_outputs import read_output

    return read_output(ran[1][0].output, outputs)[0] - 1


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    place = tmp_path / "rows.tsv"
    place.write_text("participant_id\theight\nann\t170\nbob\t180\n")
    return place


IMPORTS = """
def f(rows):
    import mine
    return mine.X + len(rows)
"""
WRITES = """
def f(rows):
    import mine, os
    for place in ("/env/own", "/env/own/packages", mine.__file__):
        try:
            os.chmod(place, 0o777)
        except OSError:
            pass
    for place in (mine.__file__, "/env/own/new", "/env/own/packages/new.py"):
        try:
            open(place, "wb")
            return 1
        except OSError:
            pass
    mine.X = 77
    return 0
"""


@needs_bubbles
def test_a_program_imports_what_it_brought_along_and_cannot_change_it(
    kept: Environments, sandbox: SandboxPool, rows: Path, tmp_path: Path
) -> None:
    made = kept.add_folder(folder_of(tmp_path / "folder", mine="X = 40"))
    imports: dict[str, object] = {"kind": "function", "source": IMPORTS}
    assert said(sandbox, made.name, imports, rows) == 42
    assert said(sandbox, made.name, {"kind": "function", "source": WRITES}, rows) == 0
    assert said(sandbox, made.name, imports, rows) == 42
    middle = 49  # of -1 to 100: it says nothing, for there is no such module
    assert said(sandbox, "", imports, rows) == middle


SPY = """
import os
os.environ["SEEN"] = "1"
X = 5
"""
WHOLE = """
def f(rows):
    import sys
    return 10 * ("mine" in sys.modules) + ("pandas" in sys.modules)
"""


@needs_bubbles
def test_nothing_that_was_brought_along_is_imported_before_the_block(
    kept: Environments, sandbox: SandboxPool, rows: Path, tmp_path: Path
) -> None:
    shadows = {"mine": SPY, "decimal": "raise SystemExit", "uuid": "raise SystemExit"}
    made = kept.add_folder(folder_of(tmp_path / "folder", **shadows))
    assert said(sandbox, made.name, {"kind": "function", "source": WHOLE}, rows) == 1
    theirs = kept.add_folder(folder_of(tmp_path / "other", pandas="def read_csv(f, sep): return 1"))
    alone = "def f(rows):\n import sys\n return 60 + rows + ('numpy' in sys.modules)"
    assert said(sandbox, theirs.name, {"kind": "function", "source": alone}, rows) == 61


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a layout with an image that has an interpreter, and its digest."""
    place = tmp_path_factory.mktemp("image")
    run = member("opt/run.py", OWN_PROGRAM.encode(), mode=0o755)
    entry = ("/sbin/python3", "-I", "/opt/run.py")
    layers = [python_layer(), tar_of([run, member("opt/file", b"the image's")])]
    return place, layout(place, layers, entry=entry, settings=PYTHON, packed=False)


OWN_PROGRAM = """
import json, os, sys
source, target, level = sys.argv[1:]
lines = open(source + "/participants.tsv").read().splitlines()
os.makedirs(target + "/out")
bad = 0
for place in ("/new", "/opt/file", "/lib64/new", "/sbin/python3", "/dev/new"):
    try:
        os.chmod(os.path.dirname(place), 0o777)
    except OSError:
        pass
    try:
        open(place, "ab")
        bad = 50
    except OSError:
        pass
ours = sorted(os.listdir("/")) == ["dev", "lib64", "opt", "proc", "sbin", "sys", "tmp", "work"]
with open(target + "/out/answer.json", "w") as file:
    json.dump({"m": bad + len(lines) + 10 * ours + 20 * (level == "group")}, file)
"""


@needs_bubbles
def test_an_image_runs_its_own_program_over_a_root_that_nobody_writes_to(
    kept: Environments, sandbox: SandboxPool, rows: Path, pythons: tuple[Path, str]
) -> None:
    made = kept.add_image(*pythons)
    assert said(sandbox, made.name, {"kind": "program", "source": ""}, rows) == 33
    handed_in = OWN_PROGRAM.replace("20 *", "40 *")
    assert said(sandbox, made.name, {"kind": "program", "source": handed_in}, rows) == 53


LEAVES = """
import os, sys, threading
os.makedirs(sys.argv[2] + "/out")
def write(): open(sys.argv[2] + "/out/answer.json", "w").write('{"m": 9}')
write()
"""


INTERRUPTS = """
import ctypes, os, sys
os.makedirs(sys.argv[2] + "/out")
signalled = [ctypes.CDLL(None).syscall(234, 1, 1, number) for number in (0, 2, 9, 15, 10)]
open(sys.argv[2] + "/out/answer.json", "w").write('{"m": %d}' % (9 if not any(signalled) else 30))
"""  # to the first process of the room, which reads what is left


LEFT = (
    ("plain", LEAVES, True),
    ("status", LEAVES + "os._exit(3)", True),
    ("late", LEAVES + "while True: pass", False),
    ("too much", LEAVES + "open(sys.argv[2] + '/out/answer.json', 'w').write(' ' * 90_000)", False),
    ("a folder", "import os, sys\nos.makedirs(sys.argv[2] + '/out/answer.json')", False),
    ("interrupts", INTERRUPTS, True),
    ("no program", "raise SystemExit", False),
)


@needs_bubbles
def test_what_an_images_program_leaves_is_read_when_it_is_gone(
    kept: Environments, sandbox: SandboxPool, rows: Path, pythons: tuple[Path, str]
) -> None:
    made = kept.add_image(*pythons)
    for name, source, is_heard in LEFT:
        found = said(sandbox, made.name, {"kind": "program", "source": source}, rows)
        assert found == (9 if is_heard else 49), name


@needs_bubbles
def test_what_is_removed_after_it_was_checked_is_still_run_or_nothing_is(
    kept: Environments, sandbox: SandboxPool, rows: Path, pythons: tuple[Path, str]
) -> None:
    made = kept.add_image(*pythons)
    run: dict[str, object] = {"kind": "program", "source": ""}
    sandbox.check(LIMITS, made.name)
    kept.remove(made.name)
    assert said(sandbox, made.name, run, rows) == 33
    assert code_of(lambda: sandbox.check(LIMITS, made.name)) == "bad-environment"
    sandbox.close()
    with pytest.raises(SandboxStopped):
        said(sandbox, made.name, run, rows)


@needs_bubbles
def test_a_lock_of_two_wheels_is_bound_by_the_one_that_was_installed(
    kept: Environments, sandbox: SandboxPool, rows: Path, wheels: Path, tmp_path: Path
) -> None:
    first = wheel(wheels, "mine", "X = 40")
    place = wheels / "mine-1.0-py3-none-any.whl"
    place.rename(tmp_path / place.name)
    second = wheel(wheels, "mine", "X = 50")
    lock = tmp_path / "lock"
    lock.write_text(f"mine==1.0 --hash=sha256:{first} --hash=sha256:{second}\n")
    made = kept.add_lock(lock)
    bound = sandbox.environment(made.name)
    imports: dict[str, object] = {"kind": "function", "source": IMPORTS}
    assert sandbox.environment(made.name) == bound
    assert said(sandbox, made.name, imports, rows) == 52
    kept.remove(made.name)
    (tmp_path / place.name).rename(place)
    assert kept.add_lock(lock).name == made.name
    assert sandbox.environment(made.name) != bound
    assert own_of(sandbox.environment(made.name)) == made.name
    sandbox.check(LIMITS, made.name)  # which lets go of the other one's
    assert said(sandbox, made.name, imports, rows) == 42


# --- bound to an approval -------------------------------------------------------------------------


@pytest.fixture
def vault(tmp_path: Path, kept: Environments) -> Iterator[OpenVault]:
    people = [(f"p{place}", 170) for place in range(20)]
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", write_csv(tmp_path / "t.csv", ("who", "height"), people), card(CARD))
        made.enrol("ria", "researchers")
        sandbox = made.house.desk.pipelines.door.sandbox
        sandbox._own = kept  # type: ignore[attr-defined]  # of SandboxPool
        sandbox._sleep = lambda _: None  # type: ignore[attr-defined]
        yield made


@needs_bubbles
def test_another_environment_is_another_program_that_waits(
    vault: OpenVault, kept: Environments, tmp_path: Path
) -> None:
    place = folder_of(tmp_path / "folder", mine="X = 40")
    first = kept.add_folder(place)
    (place / "mine.py").write_text("X = 41")
    second = kept.add_folder(place)
    as_ria = OpenVault(vault.house, "ria")
    digests = {}
    for own in ("", first.name, second.name):
        body: dict[str, object] = {
            "data_set": "town", "source": IMPORTS, "name": "f", "environment": own,
            "outputs": [{"name": "m", "lower": 0, "upper": 100}],
        }  # fmt: skip
        shown = as_ria.call("submit-pipeline", body)
        digests[own] = str(shown["digest"])
        assert shown["state"] == "waiting"
    assert len(set(digests.values())) == 3
    vault.call("decide-pipeline", {
        "data_set": "town", "pipeline": digests[first.name], "state": "approved",
        "most_epsilon": 900,
    })  # fmt: skip
    asked = {"data_set": "town", "epsilon": 900, "cpu_s": 3, "blocks": 2}
    other = {**asked, "pipeline": digests[second.name]}
    assert code_of(lambda: as_ria.call("run-pipeline", other)) == "pipeline-waits"
    mine = {**asked, "pipeline": digests[first.name]}
    answer: Any = as_ria.call("run-pipeline", mine)
    assert abs(answer["rows"][0][0] - 50) < 1  # two blocks of ten people
    kept.remove(first.name)
    gone = {**mine, "epsilon": 800}
    assert code_of(lambda: as_ria.call("run-pipeline", gone)) == "bad-environment"
    spent = {a.name: a.spent.epsilon / 1e9 for a in vault.house.ledger.store.accounts()}
    assert spent["data-set:town"] == 900
