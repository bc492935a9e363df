"""The Python client, which works the same on a vault folder and on a vault behind a server."""

from sfumato.client.answer import Answer
from sfumato.client.async_vault import AsyncDataSet, AsyncVault
from sfumato.client.column_expressions import Column, Condition, case, col
from sfumato.client.query_builder import Builder
from sfumato.client.remote_vault import RemoteVault
from sfumato.client.vault import DataSet, Transport, Vault

__all__ = [
    "Answer",
    "AsyncDataSet",
    "AsyncVault",
    "Builder",
    "Column",
    "Condition",
    "DataSet",
    "RemoteVault",
    "Transport",
    "Vault",
    "case",
    "col",
]
