"""The version of the wire format (messages of server and client), and of the package."""

from typing import Final

WIRE: Final = 1  # the wire version; a change that old clients would not understand increases it
VERSION: Final = "0.2.0"  # the version of the package
