"""The versions of the wire format and of the package."""

from typing import Final

WIRE: Final = 1  # increased by a change that old clients would not understand
VERSION: Final = "0.1.0"  # of the package
