"""Keep old import paths working: an import of an old path returns the moved module.

The old paths are those that the documentation showed up to version 0.1.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

# old path, in the documentation up to version 0.1 -> current path
MOVED: Final[Mapping[str, str]] = {
    "sfumato.client.kept_device": "sfumato.features.surveys.device_files",
    "sfumato.client.respondent": "sfumato.features.surveys.respondent_client",
    "sfumato.client.surveys": "sfumato.features.surveys.client",
    "sfumato.convening": "sfumato.app.federation",
    "sfumato.core": "sfumato.dp",
    "sfumato.core.federation": "sfumato.features.federated.agreement",
    "sfumato.core.local": "sfumato.dp.local",
    "sfumato.core.local.estimate": "sfumato.dp.local.frequency_estimation",
    "sfumato.core.local.heavy_hitters": "sfumato.dp.local.heavy_hitters",
    "sfumato.core.local.ranking": "sfumato.dp.local.ranking_response",
    "sfumato.core.local.two_coins": "sfumato.dp.local.two_coins",
    "sfumato.dice": "sfumato.system.randomness",
    "sfumato.federated": "sfumato.features.federated",
    "sfumato.federated.course": "sfumato.features.federated.course",
    "sfumato.federated.flower": "sfumato.features.federated.flower",
    "sfumato.lab.attacks.ratings": "sfumato.lab.attacks.rating_linkage",
    "sfumato.lab.attacks.synthetic_risk": "sfumato.lab.attacks.synthetic_rows_risk",
    "sfumato.lab.audit.channels": "sfumato.lab.audit.side_channels",
    "sfumato.lab.broken.loo_shared_noise": "sfumato.lab.broken.leave_one_out_shared_noise",
    "sfumato.lab.curves": "sfumato.lab.utility_curves",
    "sfumato.lab.local_global": "sfumato.lab.local_and_central",
    "sfumato.lab.ours": "sfumato.lab.platform_noise",
    "sfumato.lab.parallel": "sfumato.lab.empirical_sensitivity",
    "sfumato.lab.specimens": "sfumato.lab.sample_data",
    "sfumato.lab.target": "sfumato.lab.attack_target",
    "sfumato.services": "sfumato.features",
    "sfumato.services.anonymity": "sfumato.features.anonymization",
}


def new_path(old: str) -> str | None:
    """Return the current import path of a module that was moved; None if it wasn't.

    A module counts as moved if its own path or its package's path is an old one.
    """
    package, _, name = old.rpartition(".")
    below = f"{MOVED[package]}.{name}" if package in MOVED else None
    return MOVED.get(old, below)


class _OldPaths(MetaPathFinder, Loader):
    """An import hook that finds modules by their old path, and loads them on demand."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return an import spec for a module's old path, or None for all other paths."""
        return ModuleSpec(fullname, self) if new_path(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the moved module itself, so that its old and new path give the same objects."""
        module = importlib.import_module(new_path(spec.name) or spec.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the moved module's spec; don't run the module again, since it is imported."""
        module.__spec__ = self._spec


def keep_old_paths() -> None:
    """Install the import hook for old import paths; a second call does nothing."""
    if not any(isinstance(one, _OldPaths) for one in sys.meta_path):
        sys.meta_path.insert(0, _OldPaths())
