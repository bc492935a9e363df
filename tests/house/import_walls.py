"""Who may import whom, by room and by kind of file; read from the source, not from running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVERYTHING: Final = ("",)
VALUES: Final = ("query.expression", "query.expression_json", "query.measure")
# room -> what else of ours it may import (a prefix of the dotted name after `sfumato.`)
ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "dp": (),
    "system": ("dp.refusal",),
    "vault": ("dp", *VALUES),
    "query": ("dp", "vault"),
    "release": ("dp", "vault", "query"),
    "engines": ("dp", "vault", "system", "sandbox.ports", "query.printing", *VALUES),
    "sandbox": ("dp", "vault"),
    "storage": ("dp", "vault", "system"),
    "wire": ("dp.refusal", "vault.users", "features.*.verbs"),
    "client": ("dp", "query", "wire", "system", "features.*.client"),
    "lab": ("dp", "client", "system", "query.expression"),
    "server": (
        "dp.refusal",
        "vault.users",
        "system",
        "wire",
        "client",
        "lab",
        "features.*.schema",
        "features.*.verbs",
        "features.*.service",
        "features.*.pages",
    ),
    "cli": ("dp", "system", "wire", "client", "lab", "features.*.cli"),
    "app": EVERYTHING,
    "__main__": ("app",),
    "": ("app", "dp.refusal", "system.old_import_paths"),  # the package itself
}
# the last word of a file of a feature -> what of other rooms it may import, and of its own folder
KINDS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "model": (("dp", "vault", "query", "sandbox", "system"), ("model", "plan", "ports")),
    "ports": (("dp", "vault"), ("model",)),
    "plan": (("dp", "vault", "query", "sandbox"), ("model", "plan")),
    "release": (("dp", "vault", "query", "sandbox", "release"), ("model", "plan", "release")),
    "service": (
        ("dp", "vault", "query", "sandbox", "release", "system", "wire"),
        ("model", "plan", "ports", "release", "schema", "service"),
    ),
    "store": (("dp", "vault", "system", "storage", *VALUES), ("model", "ports", "store")),
    "schema": (("dp.refusal", "wire"), ("schema",)),
    # a verb uses the services that the dispatcher hands it, of other features too
    "verbs": (
        ("dp.refusal", "vault.users", "wire", "features.*.service", "features.*.schema"),
        ("model", "schema", "service", "verbs"),
    ),
    "pages": (("dp.refusal", "server", "wire", "client"), ("client", "schema", "pages")),
    "cli": (("dp", "cli", "client", "wire", "system"), ("model", "client", "cli")),
    "client": (
        ("dp", "vault.card", "query", "client", "wire", "system"),
        ("model", "client", "schema"),
    ),
}
# folders and files of features whose kind their name does not say
OF_KIND: Final[Mapping[str, str]] = {
    "features.data_sets.ready_made": "client",
    "features.federated.flower": "client",
    "features.federated.tensors": "client",
    "features.federated.training": "client",
    "features.federated.convener": "client",
    "features.federated.course": "client",
    "features.regression": "client",
    "features.surveys.answered_waves": "client",
    "features.surveys.device_file_reader": "client",
    "features.surveys.device_files": "client",
    "features.surveys.device_privacy_statement": "client",
    "features.surveys.questionnaire": "cli",
    "features.anonymization.report_text": "cli",
    "features.data_sets.card_preview": "client",
    "features.data_sets.card_steps": "client",
    "features.data_sets.earlier_card": "client",
    "features.audit.answer_sheet": "service",
    "features.audit.reviewed_releases": "service",
    "features.audit.sheet_verification": "service",
    "features.federated.secure_rounds": "service",
    "features.federated.training_progress": "service",
    "features.policy.spending": "service",
    "features.queries.history": "service",
    "features.synthetic.price_split": "release",
    "features.synthetic.distance_to_rows": "release",
    "features.synthetic.linked_marginals": "release",
}
NOT_PUBLIC: Final = (
    "release.unseal",
    "release.guarantees.central_dp",
    "release.guarantees.reviewed",
)


@dataclass(frozen=True)
class Import:
    """One import of ours: where it stands and what it names."""

    importer: str
    imported: str
    line: int


def imports_of(package: Path) -> Iterator[Import]:
    """Yield every import of ours in the package, wherever in a file it stands."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        importer = ".".join(p for p in parts if p != "__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name in _names(node, parts):
                yield Import(importer, name, getattr(node, "lineno", 0))


def broken_walls(package: Path) -> set[tuple[str, str]]:
    """Return each import that the tables do not let stand: importer, imported module."""
    return {
        (found.importer, module_of(found.imported, package))
        for found in imports_of(package)
        if not is_allowed(found, package)
    }


def _names(node: ast.AST, parts: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = ("sfumato", *parts)[: len(parts) + 1 - node.level]
            base = ".".join([*above, base] if base else above)
        full = [f"{base}.{alias.name}" for alias in node.names]
    else:
        return
    for name in full:
        if name == "sfumato" or name.startswith("sfumato."):
            yield name.removeprefix("sfumato").removeprefix(".")


def is_allowed(found: Import, package: Path) -> bool:
    """Say whether the tables let this import stand."""
    room = found.importer.partition(".")[0]
    imported = module_of(found.imported, package)
    if room != "features":
        allowed = ROOMS[room]
        return allowed == EVERYTHING or _is_one_of(imported, (room, *allowed))
    kind, feature = kind_of(found.importer), _feature(found.importer)
    outside, inside = KINDS[kind]
    if imported.startswith("features."):
        if found.importer.count(".") == 1:  # a feature's face passes on what is its own
            return _feature(imported) == feature
        if _feature(imported) != feature:
            return _is_one_of(imported, tuple(one for one in outside if "*" in one))
        return kind_of(imported) in inside
    is_public = kind == "release" or not _is_one_of(imported, NOT_PUBLIC)
    return is_public and _is_one_of(imported, outside)


def kind_of(module: str) -> str:
    """Return the kind of a feature's file: the last word of its name, or `model`."""
    for name, kind in OF_KIND.items():
        if _is_under(module, name):
            return kind
    last = module.rpartition(".")[2].rpartition("_")[2]
    if module.count(".") < 2:
        return "client"  # the feature's own face
    return last if last in KINDS else "model"


def module_of(name: str, package: Path) -> str:
    """Return the module of a name that was imported: the name itself, or what it is of."""
    path = package / name.replace(".", "/")
    is_module = path.is_dir() or path.with_name(path.name + ".py").exists()
    return name if is_module or not name else name.rpartition(".")[0]


def _feature(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def _is_one_of(module: str, allowed: tuple[str, ...]) -> bool:
    for one in allowed:
        if one.startswith("features.*."):
            kind = one.rpartition(".")[2]
            if module.startswith("features.") and kind_of(module) == kind:
                return True
        elif _is_under(module, one):
            return True
    return False


def _is_under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")
