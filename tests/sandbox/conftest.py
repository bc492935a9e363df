"""The tests of the sandbox, for every runtime that starts on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.sandbox_blocks import RUNTIMES, starts
from support.tree_images import Image

# in a container they are repeated by `make slow`: a block sees the same in each
# (test_container_runtimes.py),
_ONCE: Final = ("test_escapes_of_own_environments.py", "test_marks.py", "test_covert_senders.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long repeats behind the marker, before others choose by it."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if item.path.name in _ONCE and params.get("runtime", "bubblewrap") != "bubblewrap":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    """Return a runtime by its name; the default one has to start."""
    name = str(request.param)
    if name != "bubblewrap" and not starts(name):
        pytest.skip(f"no bubble starts with {name} on this machine")
    return name


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Return an image with a shell and Python, and what runs its programs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Image(Path(folder))
        yield made
        made.pool.close()
        made.kept.remove(made.own)
