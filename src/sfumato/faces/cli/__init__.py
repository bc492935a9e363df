"""The command line: plain words for people, one JSON object for programs."""

from sfumato.faces.cli.main import run

__all__ = ["run"]
