"""A copy of the checkout in which one file at a time is changed and its tests are run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.mutate.mutants import Mutant
from tools.mutate.record import Verdict
from tools.mutate.targets import Target

ROOT = Path(__file__).parents[2]
LEAST_S = 60.0  # what any test file may take, beside five times what it takes unchanged
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0")


class Red(Exception):
    """Tests fail on the source as it is: no mutant can be judged by them."""


@dataclass
class Bench:
    """The copy, and how long each test file takes in it."""

    home: Path
    _took_s: dict[str, float] = field(default_factory=dict)
    _written: int = 0

    def judge(self, target: Target, mutant: Mutant) -> tuple[Verdict, str]:
        """Return what the tests say of the mutant, and the first that fails."""
        for test in target.tests:
            limit_s = self._limit_s(test)
            with self._changed(mutant):
                verdict, by = self._run(test, limit_s)
            if verdict != "survived":
                return verdict, by
        return "survived", ""

    def _limit_s(self, test: str) -> float:
        """Return what a test file may take; it is run once on the source as it is."""
        if test not in self._took_s:
            self._time(test)
        return max(LEAST_S, 5 * self._took_s[test])

    def _time(self, test: str) -> None:
        began = time.monotonic()
        verdict, by = self._run(test, 900)
        if verdict != "survived":
            raise Red(f"{by or test} fails on the source as it is")
        self._took_s[test] = time.monotonic() - began

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        path = self.home / mutant.path
        source = path.read_bytes()
        try:
            self._write(path, mutant.applied(source))
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: bytes) -> None:
        """Write the file with a time of its own, or Python would take the last one's bytecode."""
        self._written += 1
        path.write_bytes(source)
        os.utime(path, (10**9 + self._written, 10**9 + self._written))

    def _run(self, test: str, limit_s: float) -> tuple[Verdict, str]:
        shutil.rmtree(self.home / ".hypothesis", ignore_errors=True)
        python = self.home / ".venv" / "bin" / "python"
        with subprocess.Popen(
            [python, "-m", "pytest", *OPTIONS, "-m", "not slow", test],
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return "slow", test
            finally:  # of a run that is stopped, nothing is left either
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode == 0:
            return "survived", ""
        found = FAILED.search(out)
        return "killed", found[1].removeprefix("tests/") if found else f"{test} does not start"


@contextmanager
def bench() -> Iterator[Bench]:
    """Make a copy of what git knows or would add, with an interpreter that imports the copy."""
    with TemporaryDirectory(prefix="sfumato-mutants-") as folder:
        home = Path(folder).resolve()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).is_file():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, home / name)
        link(home)
        yield Bench(home)


def link(home: Path) -> None:
    """Give the copy an interpreter of its own: an engine's worker has no PYTHONPATH to read."""
    venv.create(home / ".venv", with_pip=False, symlinks=True)
    site = home / ".venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    here = sysconfig.get_paths()["purelib"]
    (site / "sfumato-mutants.pth").write_text(f"{home / 'src'}\n{here}\n")
