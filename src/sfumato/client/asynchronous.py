"""The same vault without holding up an event loop: `await` what would wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never, Unpack

from sfumato.client.answer import Answer
from sfumato.client.builder import Builder, Steps
from sfumato.client.pipeline import Ranges, handed_in_body, program_body, run_body
from sfumato.client.remote import AsyncTransport, check_wire
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
from sfumato.core.refusal import Refused
from sfumato.wire import read_refusal


class AsyncVault:
    """A vault that a service holds; `vault["clinic"]` is one of its data sets."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def __getitem__(self, name: str) -> AsyncDataSet:
        """Return the data set; whether it is there, its first use tells."""
        return AsyncDataSet(self, name)

    async def data_sets(self) -> list[AsyncDataSet]:
        """Return the data sets that may be asked."""
        found = (await self.call("data-sets", {}))["data_sets"]
        cards = found if isinstance(found, list) else []
        return [AsyncDataSet(self, str(card["name"])) for card in cards]

    async def history(self, limit: int = 50) -> History:
        """Return your own questions, the newest first."""
        return History(await self.call("history", {"limit": limit}))

    async def answer(self, op: str) -> Answer:
        """Return an answer of yours again, by its operation; free."""
        return Answer.of(await self.call("answer", {"op": op}))

    async def call(self, verb: str, body: Json) -> Json:
        """Return the service's answer, or raise its refusal."""
        answer = await self._transport.call(verb, body)
        refused = read_refusal(answer)
        if refused is not None:
            raise refused
        return answer

    async def close(self) -> None:
        """Let go of the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncVault:
        check_wire((await self.call("hello", {})).get("wire"))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


@dataclass(frozen=True)
class _NotHere:
    """What a question is asked of that was built for `await data_set.ask(question)`."""

    @property
    def card(self) -> CardView:
        """Refuse: the card would have to be waited for."""
        raise _awaited()

    @property
    def budget(self) -> Budget:
        """Refuse: the budget would have to be waited for."""
        raise _awaited()

    def ask(self, _question: Builder, **_terms: Unpack[AskTerms]) -> Never:
        """Refuse: the answer would have to be waited for."""
        raise _awaited()

    def price(self, _question: Builder, **_terms: Unpack[PriceTerms]) -> Never:
        """Refuse: the price would have to be waited for."""
        raise _awaited()


class AsyncDataSet(Steps):
    """A data set to ask: build a question with its steps, then `await` its ask."""

    def __init__(self, vault: AsyncVault, name: str) -> None:
        self._vault = vault
        self.name = name

    async def card(self) -> CardView:
        """Return what the owner declared."""
        return CardView(await self._vault.call("card", {"data_set": self.name}))

    async def budget(self) -> Budget:
        """Return cap, spent and left."""
        return Budget(await self._vault.call("budget", {"data_set": self.name}))

    async def ask(self, question: str | Builder, **terms: Unpack[AskTerms]) -> Answer:
        """Return a private answer and pay for it; asking the same again is free."""
        return Answer.of(await self._vault.call("ask", self._body(question, terms)))

    async def price(self, question: str | Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return what asking would cost and how far off it would be; nothing is spent."""
        return Price(await self._vault.call("price", self._body(question, terms)))

    async def stream(self, name: str) -> Answer:
        """Return the running counts of what the owner has closed of a stream; free."""
        return Answer.of(await self._vault.call("stream", {"data_set": self.name, "stream": name}))

    async def twin(
        self,
        question: str | Builder | None = None,
        *,
        rows: int | None = None,
        seed: str | None = None,
    ) -> Twin:
        """Return a look-alike made from the card alone: free, and no row is read."""
        body = {"data_set": self.name} if question is None else self._body(question, {})
        more = {key: value for key, value in (("rows", rows), ("seed", seed)) if value is not None}
        return Twin(await self._vault.call("twin", {**body, **more}))

    async def dp_twin(self, **terms: Unpack[TwinTerms]) -> Twin:
        """Return a synthetic data set from privately measured marginals, and pay for it."""
        body = {"data_set": self.name, **terms_body(terms)}
        return Twin(await self._vault.call("dp-twin", body))

    async def dp_twin_price(self, **terms: Unpack[TwinTerms]) -> TwinPrice:
        """Return what a DP twin would cost and what would be counted; nothing is spent."""
        body = {"data_set": self.name, **terms_body(terms)}
        return TwinPrice(await self._vault.call("dp-twin-price", body))

    async def run(
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        epsilon: Number,
        columns: Sequence[str] | None = None,
        environment: str = "",
        **terms: Unpack[RunTerms],
    ) -> Answer:
        """Return the private average, over blocks of people, of what your function says of each."""
        handed_in = await self.submit(
            function, outputs=outputs, columns=columns, environment=environment
        )
        body = run_body(self.name, handed_in, epsilon, terms_body(terms))
        return Answer.of(await self._vault.call("run-pipeline", body))

    async def submit(
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        columns: Sequence[str] | None = None,
        environment: str = "",
    ) -> HandedIn:
        """Hand in a function for the owner to approve; return its digest, state and errors."""
        body = handed_in_body(self.name, program_body(function, outputs), columns, environment)
        return HandedIn(await self._vault.call("submit-pipeline", body))

    async def plan(
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        epsilon: Number,
        columns: Sequence[str] | None = None,
        people: int | None = None,
    ) -> BlocksPlan:
        """Return a table of blocks, noise and bias, tried on made-up people; nothing is spent."""
        handed_in = await self.submit(function, outputs=outputs, columns=columns)
        said: Json = {} if people is None else {"people": people}
        body = run_body(self.name, handed_in, epsilon, said)
        return BlocksPlan(await self._vault.call("plan-pipeline", body))

    def begun(self) -> Builder:
        """Return a question that asks nothing yet."""
        return Builder(self.name, _NotHere())

    def _body(self, question: str | Builder, terms: Mapping[str, object]) -> Json:
        return question_body(self.name, question, terms)

    def __repr__(self) -> str:
        return f"AsyncDataSet({self.name!r})"


def _awaited() -> Refused:
    return Refused(
        "not-allowed",
        "This question was built on an asynchronous data set.",
        "Write `await data_set.ask(question)`.",
    )
