"""The face of an embedded vault: the same verbs as over HTTP, called in the same process."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.verbs import finished_here
from sfumato.server.dispatch import Dispatcher
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json, refusal_shape
from sfumato.wire.verb_table import BY_VERB

JOBS = ("begin", "add")  # verbs that give a job, which this process works on itself


@dataclass(frozen=True)
class LocalTransport:
    """Speaks the wire's shapes to the services of one vault, on behalf of one user."""

    desk: Dispatcher
    caller: Caller

    def call(self, verb: str, body: Json) -> Json:
        """Return the answer's shape, or the refusal's."""
        try:
            if verb not in BY_VERB:
                raise bad_request(f"there is no verb {verb!r}")
            answer = self.desk.done(verb, self.caller, body)
            return finished_here(self.desk, self.caller, answer) if verb in JOBS else answer
        except Refused as refused:
            shape = refusal_shape(refused)
        return shape
