"""Lets processes of Flower take their time to begin; test_flower_fleet.py leads them here.

Flower starts a process for every message, gives it 30 seconds from being claimed to its first word,
and has no setting for that. One that is late is refused and another is started in its place: on a
busy machine they hinder each other for ever. Nothing else is changed: a node that is silent is
missed as soon as before, by a number of another module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final

BEGIN_S: Final = 900
_NAME: Final = "HEARTBEAT_DEFAULT_INTERVAL"
_CLAIMS: Final = tuple(f"flwr.supercore.corestate.{of}_corestate" for of in ("in_memory", "sql"))


class Patience(MetaPathFinder):
    """Finds the modules that count a claim's seconds, and lets them count further."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec, whose number is another once it was run."""
        spec = PathFinder.find_spec(name, path, target) if name in _CLAIMS else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def patiently(module: ModuleType) -> None:
            run(module)
            if not hasattr(module, _NAME):  # another Flower: look at how it counts
                raise ImportError(_NAME)
            setattr(module, _NAME, BEGIN_S)

        spec.loader.exec_module = patiently  # of this one loader
        return spec


sys.meta_path.insert(0, Patience())
