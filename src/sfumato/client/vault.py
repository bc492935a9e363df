"""A vault and its data sets, as a researcher holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Protocol, Unpack

from sfumato.client.airlock import AirlockRoom
from sfumato.client.answer import Answer
from sfumato.client.builder import Builder, Steps
from sfumato.client.pipeline import Ranges, handed_in_body, program_body, run_body
from sfumato.client.progress import told_by_the_clock
from sfumato.client.shown import (
    BlocksPlan,
    Budget,
    CardView,
    HandedIn,
    History,
    Price,
    TwinPrice,
)
from sfumato.client.terms import (
    AskTerms,
    Json,
    Number,
    PriceTerms,
    RunTerms,
    TwinTerms,
    question_body,
    terms_body,
)
from sfumato.client.twin import Twin
from sfumato.wire import read_refusal


class Transport(Protocol):
    """How the client reaches the services: in this process, or over HTTP."""

    def call(self, verb: str, body: Json) -> Json:
        """Return the answer's shape, or the refusal's."""
        ...


class Vault:
    """A place that holds data sets; `vault["clinic"]` is one of them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __getitem__(self, name: str) -> DataSet:
        """Return the data set; whether it is there, its first use tells."""
        return DataSet(self, name)

    def __iter__(self) -> Iterator[DataSet]:
        """Yield the data sets that may be asked."""
        found = self.call("data-sets", {})["data_sets"]
        cards = found if isinstance(found, list) else []
        return iter([DataSet(self, str(card["name"])) for card in cards])

    def history(self, limit: int = 50) -> History:
        """Return your own questions, the newest first."""
        return History(self.call("history", {"limit": limit}))

    def answer(self, op: str) -> Answer:
        """Return an answer of yours again, by its operation; free."""
        return Answer.of(self.call("answer", {"op": op}))

    def has_receipt(self, receipt: Json) -> bool:
        """Verify that the vault's ledger still has a receipt's entry.

        Args:
            receipt: `answer.receipt`, or the `receipt` of an answer's JSON that you kept.

        Returns:
            Whether its entry stands. If not, the ledger has lost entries, and is frozen.

        Raises:
            Refused: `answer-unknown`, if this vault did not sign it.
        """
        return self.call("present-receipt", {"receipt": receipt})["stands"] is True

    def call(self, verb: str, body: Json) -> Json:
        """Return the service's answer, or raise its refusal."""
        answer = self._transport.call(verb, body)
        refused = read_refusal(answer)
        if refused is not None:
            raise refused
        return answer

    def __repr__(self) -> str:
        return f"Vault({', '.join(data_set.name for data_set in self)})"

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{escape(data_set.name)}</li>" for data_set in self)
        return f"<p>sfumato vault</p><ul>{rows}</ul>"


class DataSet(Steps):
    """A data set to ask; it holds no rows, only a name and the way there."""

    def __init__(self, vault: Vault, name: str) -> None:
        self._vault = vault
        self.name = name

    @property
    def card(self) -> CardView:
        """Return what the owner declared."""
        return CardView(self._vault.call("card", {"data_set": self.name}))

    @property
    def budget(self) -> Budget:
        """Return cap, spent and left."""
        return Budget(self._vault.call("budget", {"data_set": self.name}))

    def ask(self, question: str | Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Return a private answer and pay for it; asking the same again is free (see terms.py)."""
        with told_by_the_clock("asking"):
            return Answer.of(self._vault.call("ask", self._body(question, terms)))

    def price(self, question: str | Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return what asking would cost and how far off it would be; nothing is spent."""
        return Price(self._vault.call("price", self._body(question, terms)))

    def stream(self, name: str) -> Answer:
        """Return the running counts of what the owner has closed of a stream; free."""
        return Answer.of(self._vault.call("stream", {"data_set": self.name, "stream": name}))

    def twin(
        self,
        question: str | Builder | None = None,
        *,
        rows: int | None = None,
        seed: str | None = None,
    ) -> Twin:
        """Return a look-alike made from the card alone: free, and no row is read.

        With a question, some of its rows pass the question's filters and fall into every group.
        """
        body = {"data_set": self.name} if question is None else self._body(question, {})
        more = {key: value for key, value in (("rows", rows), ("seed", seed)) if value is not None}
        return Twin(self._vault.call("twin", {**body, **more}))

    def dp_twin(self, **terms: Unpack[TwinTerms]) -> Twin:
        """Return a synthetic data set from privately measured marginals, and pay for it.

        The same `op` again is free and gives the same twin.
        """
        with told_by_the_clock("measuring"):
            body = {"data_set": self.name, **terms_body(terms)}
            return Twin(self._vault.call("dp-twin", body))

    def dp_twin_price(self, **terms: Unpack[TwinTerms]) -> TwinPrice:
        """Return what a DP twin would cost and what would be counted; nothing is spent."""
        body = {"data_set": self.name, **terms_body(terms)}
        return TwinPrice(self._vault.call("dp-twin-price", body))

    def run(
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        epsilon: Number,
        columns: Sequence[str] | None = None,
        environment: str = "",
        **terms: Unpack[RunTerms],
    ) -> Answer:
        """Return the private average, over blocks of people, of what your function says of each.

        It travels as source text, gets the rows of a block as a pandas frame and gives a number, or
        numbers by name; `outputs` declares their ranges: name -> (lower, upper[, step]). The owner
        approves it once. `environment` names what it brings along to run with.
        """
        handed_in = self.submit(function, outputs=outputs, columns=columns, environment=environment)
        body = run_body(self.name, handed_in, epsilon, terms_body(terms))
        with told_by_the_clock("running"):
            return Answer.of(self._vault.call("run-pipeline", body))

    def submit(
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        columns: Sequence[str] | None = None,
        environment: str = "",
    ) -> HandedIn:
        """Hand in a function for the owner to approve; return its digest, state and errors."""
        body = handed_in_body(self.name, program_body(function, outputs), columns, environment)
        return HandedIn(self._vault.call("submit-pipeline", body))

    def plan(
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        epsilon: Number,
        columns: Sequence[str] | None = None,
        people: int | None = None,
    ) -> BlocksPlan:
        """Return a table of blocks, noise and bias, tried on made-up people; nothing is spent."""
        handed_in = self.submit(function, outputs=outputs, columns=columns)
        said: Json = {} if people is None else {"people": people}
        body = run_body(self.name, handed_in, epsilon, said)
        return BlocksPlan(self._vault.call("plan-pipeline", body))

    @property
    def airlock(self) -> AirlockRoom:
        """Return the way out for files that no noise can make private: others look at them."""
        return AirlockRoom(self._vault, self.name)

    def begun(self) -> Builder:
        """Return a question that asks nothing yet."""
        return Builder(self.name, self)

    def _body(self, question: str | Builder, terms: Mapping[str, object]) -> Json:
        return question_body(self.name, question, terms)

    def __repr__(self) -> str:
        return f"DataSet({self.name!r})"

    def _repr_html_(self) -> str:
        return self.card._repr_html_()
