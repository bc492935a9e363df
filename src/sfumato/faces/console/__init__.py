"""The console: pages of the same verbs as the API, made on the server."""

from sfumato.faces.console.paper import Paper, make_paper
from sfumato.faces.console.routes import Console

__all__ = ["Console", "Paper", "make_paper"]
