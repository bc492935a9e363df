"""Surveys: the noise is drawn where the person is, and the house holds nobody's true answer."""

from sfumato.services.surveys.sent import Sent
from sfumato.services.surveys.surveys import Surveys

__all__ = ["Sent", "Surveys"]
