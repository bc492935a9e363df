"""What an owner does with a table of their own: see how anonymous it is, and recode it."""

from sfumato.core.crowd.goal import Goal
from sfumato.core.crowd.hierarchy_rules import Rule
from sfumato.core.crowd.hierarchy_text import read_rules, read_taxonomy, rules_toml
from sfumato.services.anonymity.anonymity import Anonymity, Recoding, TableFile
from sfumato.services.anonymity.blunting import Blunting
from sfumato.services.anonymity.handing_out import HandingOut

__all__ = [
    "Anonymity",
    "Blunting",
    "Goal",
    "HandingOut",
    "Recoding",
    "Rule",
    "TableFile",
    "read_rules",
    "read_taxonomy",
    "rules_toml",
]
