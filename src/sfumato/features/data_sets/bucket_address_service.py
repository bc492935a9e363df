"""Read `s3://BUCKET/PATH`, with the keys of the environment or of the usual files of AWS.

Only a vault in a folder takes such a source, because whoever uses it has these keys. A service has
connections, whose places its operator allows.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.object_store_service import check_installed, place_of
from sfumato.system.object_storage import BucketPlace
from sfumato.system.row_files import PARQUET

MAGIC: Final = "*?["  # letters of a pattern
_REGION: Final = "us-east-1"  # where a bucket is that says nothing else


def read_bucket_address(source: str) -> tuple[BucketPlace, str]:
    """Return the place of a bucket, with its keys, and the path in it; refuse another address."""
    check_installed()
    bucket, _, path = source.removeprefix("s3://").partition("/")
    path = unquote(path).strip("/")
    names = path.split("/")
    is_plain = all(name not in ("", ".", "..") and "\\" not in name for name in names)
    if not (bucket and path.isprintable() and is_plain):
        raise Refused(
            "source-unreadable",
            "This is not the address of a file, a folder or a pattern in an S3 bucket.",
            "Give s3://BUCKET/PATH, such as s3://clinic/visits.parquet.",
        )
    known = _settings()
    region = _first(known, "AWS_REGION", "AWS_DEFAULT_REGION", "region") or _REGION
    host = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    named = _first(known, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url")
    place = _place(f"s3+{(named or f'https://{host}').rstrip('/')}/{bucket}", region, known)
    return place, path


def _place(address: str, region: str, known: Mapping[str, str]) -> BucketPlace:
    in_environment = _first(known, "AWS_ACCESS_KEY_ID")
    words = (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        if in_environment
        else ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    )
    access, secret, token = (_first(known, word) for word in words)
    if not (access and secret):
        raise Refused(
            "source-unreadable",
            "There are no keys for the bucket: neither in the environment nor in the files of AWS "
            "(~/.aws/credentials, ~/.aws/config).",
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `aws configure export-credentials "
            "--format env` prints those of a profile. For a public bucket, write a connection "
            "with anonymous = true.",
        )
    place = None
    try:
        keys = {"region": region, "access_key": access, "secret_key": secret}
        place = place_of(address, keys)
    except Refused:
        place = None
    if place is None:
        raise Refused(
            "engine-unavailable",
            "The bucket's name, its region (AWS_REGION) or its host (AWS_ENDPOINT_URL) is not one "
            "that can be used. Except on this machine, a host needs https.",
            "Correct the address or the environment.",
        )
    return replace(place, session_token=token)


def _first(known: Mapping[str, str], *names: str) -> str:
    return next((known[name] for name in names if known.get(name)), "")


def _settings() -> dict[str, str]:
    """Return the settings of AWS: of the environment, and under other names those of its files."""
    profile = os.environ.get("AWS_PROFILE") or "default"
    config = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    secrets = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    section = profile if profile == "default" else f"profile {profile}"
    found = {**_section(config, section), **_section(secrets, profile)}
    return found | {name: text for name, text in os.environ.items() if name.startswith("AWS_")}


def _section(file: str, name: str) -> dict[str, str]:
    """Return one section of a file of AWS; nothing if it is not there or cannot be read."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(Path(file).expanduser(), "utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError, RuntimeError):
        return {}
    return dict(parser[name]) if parser.has_section(name) else {}


def is_parquet_part(path: str, pattern: str) -> bool:
    """Return True if a path is of a Parquet file and of a pattern, in which `**` is any folders.

    Without a pattern, all are. As Spark and Hive do, it leaves out what begins with `_`.
    """
    names = path.split("/")
    is_part = path.casefold().endswith(PARQUET) and not any(one.startswith("_") for one in names)
    return is_part and (not pattern or _fits(names, pattern.split("/")))


def _fits(names: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return _fits(names, patterns[1:]) or (bool(names) and _fits(names[1:], patterns))
    is_first = bool(names) and fnmatchcase(names[0], patterns[0])
    return is_first and _fits(names[1:], patterns[1:])


def base_of(path: str) -> tuple[str, str]:
    """Split a path into the folder that has no pattern, and the pattern, which may be empty."""
    names = path.split("/")
    first = next((i for i, name in enumerate(names) if set(name) & set(MAGIC)), len(names))
    return "/".join(names[:first]), "/".join(names[first:])
