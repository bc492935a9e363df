"""The transport of an embedded vault: the verbs of the HTTP API, called in this process.

Requests and replies pass through the same JSON as over HTTP, so that both behave alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.server.dispatch import Dispatcher
from sfumato.server.job_work import run_embedded_job
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request, json_text, read_json, read_reply
from sfumato.wire.query_json import Json, refusal_shape
from sfumato.wire.verb_table import BY_NAME

# verbs that start a job, which this process runs itself
JOBS: Final = ("begin", "begin-pipeline-run", "add", "append")


@dataclass(frozen=True)
class LocalTransport:
    """Calls the services of one vault in this process, as one user."""

    desk: Dispatcher
    caller: Caller

    def call(self, verb: str, body: Mapping[str, object]) -> Json:
        """Call an API verb; return the JSON of the answer or of the refusal."""
        try:
            reply = self._reply(verb, read_json(_sent(body)))
        except Refused as refused:
            reply = refusal_shape(refused)
        return read_reply(json_text(reply).encode())

    def _reply(self, verb: str, body: Json) -> Json:
        if verb not in BY_NAME:
            raise bad_request(f"there is no verb {verb!r}")
        reply = self.desk.done(verb, self.caller, body)
        return run_embedded_job(self.desk, self.caller, reply) if verb in JOBS else reply


def _sent(body: Mapping[str, object]) -> bytes:
    """Return the request body as JSON; refuse what JSON cannot express."""
    text = None
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        text = json_text(body)
    if text is None:
        raise bad_request("a value is no number, text, list or mapping that JSON can express")
    return text.encode()
