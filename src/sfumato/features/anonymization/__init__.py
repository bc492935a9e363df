"""k-anonymity of an owner's own table: measure it, and recode the table."""

from sfumato.dp.anonymity.hierarchy_files import read_rules, read_taxonomy, rules_toml
from sfumato.dp.anonymity.hierarchy_rules import Rule
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.features.anonymization.coarsening_request import Coarsening
from sfumato.features.anonymization.hand_out_service import HandingOut
from sfumato.features.anonymization.service import Anonymity, Recoding, TableFile

__all__ = [
    "Anonymity",
    "Coarsening",
    "Goal",
    "HandingOut",
    "Recoding",
    "Rule",
    "TableFile",
    "read_rules",
    "read_taxonomy",
    "rules_toml",
]
