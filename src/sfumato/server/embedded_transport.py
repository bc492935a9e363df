"""The transport of an embedded vault: the verbs of the HTTP API, called in this process."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.verbs import finished_here
from sfumato.server.dispatch import Dispatcher
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json, refusal_shape
from sfumato.wire.verb_table import BY_VERB

JOBS = ("begin", "add")  # verbs that start a job; this process executes it itself


@dataclass(frozen=True)
class LocalTransport:
    """Calls the services of one vault in this process, as one user."""

    desk: Dispatcher
    caller: Caller

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb; return the JSON of the answer or of the refusal."""
        try:
            if verb not in BY_VERB:
                raise bad_request(f"there is no verb {verb!r}")
            answer = self.desk.done(verb, self.caller, body)
            return finished_here(self.desk, self.caller, answer) if verb in JOBS else answer
        except Refused as refused:
            shape = refusal_shape(refused)
        return shape
