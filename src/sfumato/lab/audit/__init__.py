"""The auditor: prove lower bounds of the epsilon of Python code, commands and HTTP services."""

from sfumato.lab.audit.auditor import Audited, audit, audit_order_2, audit_rho
from sfumato.lab.audit.external_targets import Request, audit_command, audit_http, rows_or_code
from sfumato.lab.audit.one_run_audit import audit_one_run

__all__ = [
    "Audited",
    "Request",
    "audit",
    "audit_command",
    "audit_http",
    "audit_one_run",
    "audit_order_2",
    "audit_rho",
    "rows_or_code",
]
