"""The site: docs/ and README as pages, with a reference from the code, and no network."""

from tools.site.build import build

__all__ = ["build"]
