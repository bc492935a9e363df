"""The Python client: the same objects whether the vault is a folder or a server."""

from sfumato.client.answer import Answer
from sfumato.client.asynchronous import AsyncDataSet, AsyncVault
from sfumato.client.builder import Builder
from sfumato.client.columns import Column, Condition, case, col
from sfumato.client.remote import RemoteVault
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
