"""One verb, one file: what it needs, how far one person moves it, how the answer is computed."""

from sfumato.plan.verbs.table import VERBS, verb_of

__all__ = ["VERBS", "verb_of"]
