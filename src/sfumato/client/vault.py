"""A vault and its data sets, as a researcher holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Protocol, Unpack

from sfumato.client.answer import Answer
from sfumato.client.builder import Builder, Steps
from sfumato.client.shown import Budget, CardView, Price
from sfumato.client.terms import AskTerms, Json, PriceTerms, terms_body
from sfumato.core.question import question_json
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
        return Answer.of(self._vault.call("ask", self._body(question, terms)))

    def price(self, question: str | Builder, **terms: Unpack[PriceTerms]) -> Price:
        """Return what asking would cost and how far off it would be; nothing is spent."""
        return Price(self._vault.call("price", self._body(question, terms)))

    def begun(self) -> Builder:
        """Return a question that asks nothing yet."""
        return Builder(self.name, self)

    def _body(self, question: str | Builder, terms: Mapping[str, object]) -> Json:
        body: Json = {"data_set": self.name, **terms_body(terms)}
        if isinstance(question, Builder):
            return {**body, "question": question_json(question.question())}
        return {**body, "sql": question}

    def __repr__(self) -> str:
        return f"DataSet({self.name!r})"

    def _repr_html_(self) -> str:
        return self.card._repr_html_()
