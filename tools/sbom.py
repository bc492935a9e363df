"""Write what sfumato is made of as CycloneDX lists, from the locks: python -m tools.sbom FOLDER."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTS = {
    "core.lock": "sfumato.cdx.json",
    "serve.lock": "sfumato-served.cdx.json",
    "dev.lock": "sfumato-with-extras-and-tests.cdx.json",
}
ENTRY = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<where>[^\\\n]+))?", re.M)


def bill(lock: str, version: str) -> dict[str, object]:
    """Return the CycloneDX list of everything that the text of a lock names."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _part("application", "sfumato", version)},
        "components": components(lock),
    }


def components(lock: str) -> list[dict[str, object]]:
    """Return each locked distribution with the digests of the files that may be installed."""
    begins = list(ENTRY.finditer(lock))
    ends = [entry.start() for entry in begins[1:]] + [len(lock)]
    return [
        _locked(entry, lock[entry.end() : end]) for entry, end in zip(begins, ends, strict=True)
    ]


def _locked(entry: re.Match[str], digests: str) -> dict[str, object]:
    part = _part("library", entry["name"], entry["version"])
    part["hashes"] = [
        {"alg": "SHA-256", "content": digest}
        for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", digests)
    ]
    if entry["where"]:
        part["properties"] = [{"name": "sfumato:where", "value": entry["where"].strip()}]
    return part


def _part(kind: str, name: str, version: str) -> dict[str, object]:
    place = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"  # the kind, not an address
    return {"type": kind, "name": name, "version": version, "purl": place}


def main(folder: Path) -> None:
    """Write the lists into the folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    folder.mkdir(parents=True, exist_ok=True)
    for lock, name in LISTS.items():
        shape = bill((ROOT / "requirements" / lock).read_text("utf-8"), project["version"])
        (folder / name).write_text(json.dumps(shape, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
