"""What an auditor sees: the chain, an answer sheet for each release, and who may do what."""

from sfumato.services.audit.audit import Audit
from sfumato.services.audit.check import check_files, check_receipt, check_sheet

__all__ = ["Audit", "check_files", "check_receipt", "check_sheet"]
