"""JSON shapes and codes that server and client share."""

from sfumato.core.refusal import Refused
from sfumato.wire.shapes import AskShape, Json, read_ask_shape, read_refusal, refusal_shape

__all__ = ["AskShape", "Json", "Refused", "read_ask_shape", "read_refusal", "refusal_shape"]
