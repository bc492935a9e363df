"""The asynchronous client of a vault behind a service, whose calls need `await`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Never, Unpack

from sfumato.client.answer import Answer
from sfumato.client.ask_terms import (
    AskTerms,
    Json,
    Number,
    PlanTerms,
    PriceTerms,
    Receipted,
    RunTerms,
    Sized,
    TwinTerms,
    named_terms,
    no_question_term,
    no_run_term,
    no_twin_term,
    question_body,
    terms_body,
)
from sfumato.client.display import (
    BlocksPlan,
    Budget,
    CardView,
    History,
    Price,
    SubmittedProgram,
    TwinPrice,
    column_names,
)
from sfumato.client.query_builder import Builder, Steps
from sfumato.client.remote_vault import AsyncTransport, check_wire
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.client import (
    MOST_PAST,
    Ranges,
    handed_in_body,
    program_body,
    run_body,
    run_named,
)
from sfumato.features.synthetic.client import Twin
from sfumato.wire.query_json import read_refusal


class AsyncVault:
    """A vault behind a service, for async code; `vault["clinic"]` is one of its data sets."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def __getitem__(self, name: str) -> AsyncDataSet:
        """Return the data set of that name.

        Nothing is sent here, so a missing data set is only noticed at its first use. `data_sets()`
        lists the existing ones.

        Args:
            name: The name of the data set.

        Returns:
            The data set; it is not checked that it exists.
        """
        return AsyncDataSet(self, name)

    async def data_sets(self) -> list[AsyncDataSet]:
        """Return the data sets that you may ask.

        Raises:
            Refused: `service-down`, `not-signed-in`, or `not-allowed` if your token lacks the right
                to read.
        """
        found = (await self.call("data-sets", {}))["data_sets"]
        cards = found if isinstance(found, list) else []
        return [AsyncDataSet(self, str(card["name"])) for card in cards]

    async def history(self, limit: int = 50) -> History:
        """Return your own questions, the newest first.

        Args:
            limit: How many at most.

        Returns:
            For each: its time, data set, price and operation id.

        Raises:
            Refused: `bad-request` if `limit` is not 1 to 1000, `not-in-language` for a
                `FederatedVault`; over HTTP also `service-down` or `not-signed-in`.
        """
        return History(await self.call("history", {"limit": limit}))

    async def answer(self, op: str) -> Answer:
        """Fetch one of your earlier answers by its operation id; free. It may be a program's.

        Args:
            op: The operation id, as in `history()` or in the answer's receipt.

        Returns:
            The stored answer.

        Raises:
            Refused: `answer-unknown` if you have no answer under that id.
        """
        try:
            return Answer.of(await self.call("answer", {"op": op}))
        except Refused as refused:
            if refused.code != "answer-unknown":
                raise
            run = run_named(await self.call("history", {"limit": MOST_PAST}), op)
            if run is None:
                raise
            return Answer.of(await self.call("pipeline-answer", run))

    async def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation) of the service by its name.

        Args:
            verb: The name of the verb, as in the table of HTTP routes (wire/verb_table.py).
            body: Its arguments.

        Returns:
            The service's answer as JSON.

        Raises:
            Refused: Any refusal of the service.
        """
        answer = await self._transport.call(verb, body)
        refused = read_refusal(answer)
        if refused is not None:
            raise refused
        return answer

    async def close(self) -> None:
        """Close the connections to the service."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncVault:
        check_wire((await self.call("hello", {})).get("wire"))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


@dataclass(frozen=True)
class _NotHere:
    """A stand-in for the data set of a question in async code, which refuses every call."""

    @property
    def card(self) -> CardView:
        """Refuse to return the card, because async code needs an `await` for it."""
        raise _awaited()

    @property
    def budget(self) -> Budget:
        """Refuse to return the budget, because async code needs an `await` for it."""
        raise _awaited()

    def ask(self, _question: Builder, **_terms: Unpack[AskTerms]) -> Never:
        """Refuse to ask, because async code needs an `await` for an answer."""
        raise _awaited()

    def price(self, _question: Builder, **_terms: Unpack[PriceTerms]) -> Never:
        """Refuse to price, because async code needs an `await` for a price."""
        raise _awaited()


class AsyncDataSet(Steps):
    """A data set for async code: build a question with its steps, then `await` its ask."""

    _called: ClassVar[str] = "A data set"

    def __init__(self, vault: AsyncVault, name: str) -> None:
        self._vault = vault
        self.name = name

    async def card(self) -> CardView:
        """Return the data card: the owner's public description of the data set.

        Raises:
            Refused: `unknown-data-set` if there is no such data set that you may ask;
                `service-down`, or `not-signed-in`.
        """
        return CardView(await self._vault.call("card", {"data_set": self.name}))

    async def columns(self) -> tuple[str, ...]:
        """Return the column names of the data set's main table, from the card.

        Raises:
            Refused: `unknown-data-set` if there is no such data set that you may ask;
                `service-down`, or `not-signed-in`.
        """
        return column_names(await self.card())

    async def budget(self) -> Budget:
        """Return the privacy budget of the data set, its people and yourself: cap, spent, left.

        Raises:
            Refused: `unknown-data-set` if there is no such data set that you may ask;
                `service-down`, or `not-signed-in`.
        """
        return Budget(await self._vault.call("budget", {"data_set": self.name}))

    @named_terms(no_question_term)
    async def ask(  # noqa: PLR0913  # the terms of a question
        self,
        question: str | Builder,
        *,
        epsilon: Number | None = None,
        error: Mapping[str, Number] | None = None,
        delta: Number | None = None,
        people: int | Sized | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
        split: Mapping[str, Number] | None = None,
        top_up: Receipted | str | None = None,
        op: str | None = None,
        fresh: bool | None = None,
    ) -> Answer:
        """Answer a question with differential privacy, and charge the budget.

        The same question asked again is free: it returns the stored answer with the same noise.

        Args:
            question: SQL text, or a question built with this data set's steps.
            epsilon: The price of the whole request. Give this or `error`.
            error: The half-width of the 95 % interval that you want, by column of the answer:
                `{"n": 5}`. The price is computed from it.
            delta: The delta to spend where that buys less noise; 0 forces pure-epsilon noise. If
                left out, it is the card's `delta_per_request`.
            people: The size of a group, for the error of a mean: a guess, or a released count.
            max_groups: The contribution bound on groups: how many groups a person counts in.
            max_rows: The contribution bound on rows: how many rows of a person count in each group.
            split: Each column's share of the price, relative to the other columns: `{"n": 3}`.
            top_up: An earlier answer of yours, or its operation id. It becomes more precise, and
                you pay the difference to `epsilon`.
            op: Your own id of the request. A retry with the same id pays once.
            fresh: Draw new noise and pay in full, even if the answer is stored.

        Returns:
            The noisy values with their 95 % intervals, and the receipt.

        Raises:
            Refused: `budget-exceeded` if the price is more than what is left; `bad-budget` without
                a usable `epsilon` or `error`; or a code that says what the question may not do
                (`unknown-column`, `no-bounds`, `keys-needed`, `not-in-language`, ...).
        """
        terms = AskTerms(
            epsilon=epsilon, error=error, delta=delta, people=people, max_groups=max_groups,
            max_rows=max_rows, split=split, top_up=top_up,
            op=op, fresh=fresh,
        )  # fmt: skip
        return Answer.of(await self._vault.call("ask", self._body(question, terms)))

    @named_terms(no_question_term)
    async def price(  # noqa: PLR0913  # the terms of a question
        self,
        question: str | Builder,
        *,
        epsilon: Number | None = None,
        error: Mapping[str, Number] | None = None,
        delta: Number | None = None,
        people: int | Sized | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
        split: Mapping[str, Number] | None = None,
        top_up: Receipted | str | None = None,
        op: str | None = None,
        fresh: bool | None = None,
    ) -> Price:
        """Return the price of a question and the error to expect; nothing is spent.

        Args:
            question: SQL text, or a question built with this data set's steps.
            epsilon: The price of the whole request. Give this or `error`.
            error: The half-width of the 95 % interval that you want, by column of the answer:
                `{"n": 5}`. The price is computed from it.
            delta: The delta to spend where that buys less noise; 0 forces pure-epsilon noise. If
                left out, it is the card's `delta_per_request`.
            people: The size of a group, for the error of a mean: a guess, or a released count.
            max_groups: The contribution bound on groups: how many groups a person counts in.
            max_rows: The contribution bound on rows: how many rows of a person count in each group.
            split: Each column's share of the price, relative to the other columns: `{"n": 3}`.
            top_up: An earlier answer of yours, or its operation id. It becomes more precise, and
                you pay the difference to `epsilon`.
            op: Accepted so that `price` takes the arguments of `ask`; it does not change the price.
            fresh: Price new noise, even if the answer is stored.

        Returns:
            The price, the error to expect, other prices with their errors, and whether the budget
            that is left covers it.

        Raises:
            Refused: The code with which `ask` would refuse the question.
        """
        del op
        terms = PriceTerms(
            epsilon=epsilon, error=error, delta=delta, people=people, max_groups=max_groups,
            max_rows=max_rows, split=split, top_up=top_up, fresh=fresh,
        )  # fmt: skip
        return Price(await self._vault.call("price", self._body(question, terms)))

    async def stream(self, name: str) -> Answer:
        """Return a stream's running counts, for the periods that the owner has closed; free.

        Args:
            name: The name of the stream.

        Returns:
            A row for each closed period.

        Raises:
            Refused: `stream-unknown` if the data set has no such stream.
        """
        return Answer.of(await self._vault.call("stream", {"data_set": self.name, "stream": name}))

    async def twin(
        self,
        question: str | Builder | None = None,
        *,
        rows: int | None = None,
        seed: str | None = None,
    ) -> Twin:
        """Generate synthetic data (a twin) from the data card alone; it is free and reads no row.

        Args:
            question: A question that the twin must suit: some rows pass its filters, and each of
                its groups has rows.
            rows: How many people (or rows) the first table has.
            seed: The same seed gives the same twin.

        Returns:
            The synthetic tables, and a statement of how they were made.

        Raises:
            Refused: `twin-not-possible` if the card does not allow it.
        """
        body = {"data_set": self.name} if question is None else self._body(question, {})
        more = {key: value for key, value in (("rows", rows), ("seed", seed)) if value is not None}
        return Twin(await self._vault.call("twin", {**body, **more}))

    @named_terms(no_twin_term)
    async def dp_twin(  # noqa: PLR0913  # the terms of a twin
        self,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: str | None = None,
        rows: int | None = None,
        seed: str | None = None,
        op: str | None = None,
        private_bins: Sequence[str] | None = None,
        error_epsilon: Number | None = None,
    ) -> Twin:
        """Generate synthetic data from noisy marginals of the rows, and charge the budget.

        Args:
            epsilon: The price of the whole twin, without `error_epsilon`. Required.
            delta: The delta to spend; with one, the noise is Gaussian. If left out, it is the
                card's `delta_per_request`.
            method: Which marginals are measured: "independent", "mst" (if left out) or "aim".
            rows: How many people (or rows) the first table has; if left out, as many as measured.
            seed: The same seed draws the same rows from the same marginals.
            op: Your own id of the request. The same id again is free and gives the same twin.
            private_bins: Numeric columns whose bins are also measured, within the same price.
            error_epsilon: An extra price, for measuring the error of the twin.

        Returns:
            The synthetic tables, their guarantee, and their error if it was paid for.

        Raises:
            Refused: `bad-budget`, `budget-exceeded`, or `twin-not-possible`.
        """
        terms = TwinTerms(
            epsilon=epsilon, delta=delta, method=method, rows=rows, seed=seed, op=op,
            private_bins=private_bins, error_epsilon=error_epsilon,
        )  # fmt: skip
        body = {"data_set": self.name, **terms_body(terms)}
        return Twin(await self._vault.call("dp-twin", body))

    @named_terms(no_twin_term)
    async def dp_twin_price(  # noqa: PLR0913  # the terms of a twin
        self,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        method: str | None = None,
        rows: int | None = None,
        seed: str | None = None,
        op: str | None = None,
        private_bins: Sequence[str] | None = None,
        error_epsilon: Number | None = None,
    ) -> TwinPrice:
        """Return the price of a DP twin and the columns that it measures; nothing is spent.

        Args:
            epsilon: The price of the whole twin, without `error_epsilon`. Required.
            delta: The delta to spend; with one, the noise is Gaussian. If left out, it is the
                card's `delta_per_request`.
            method: Which marginals are measured: "independent", "mst" (if left out) or "aim".
            rows: How many people (or rows) the first table has; if left out, as many as measured.
            seed: The same seed draws the same rows from the same marginals.
            op: Your own id of the request. The same id again is free and gives the same twin.
            private_bins: Numeric columns whose bins are also measured, within the same price.
            error_epsilon: An extra price, for measuring the error of the twin.

        Returns:
            The price, whether the budget left covers it, and the columns to be measured.

        Raises:
            Refused: `bad-budget` or `twin-not-possible`.
        """
        terms = TwinTerms(
            epsilon=epsilon, delta=delta, method=method, rows=rows, seed=seed, op=op,
            private_bins=private_bins, error_epsilon=error_epsilon,
        )  # fmt: skip
        body = {"data_set": self.name, **terms_body(terms)}
        return TwinPrice(await self._vault.call("dp-twin-price", body))

    @named_terms(no_run_term)
    async def run(  # noqa: PLR0913  # the terms of a run
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        epsilon: Number | None = None,
        error: Mapping[str, Number] | None = None,
        split: Mapping[str, Number] | None = None,
        columns: Sequence[str] | None = None,
        environment: str = "",
        blocks: int | None = None,
        trim: int | None = None,
        take: Literal["mean", "median", "auto"] | None = None,
        delta: Number | None = None,
        cpu_s: Number | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        timing: Literal["isolated", "batch"] | None = None,
        job_s: Number | None = None,
        op: str | None = None,
    ) -> Answer:
        """Run a function on blocks of people and release the noisy average (sample and aggregate).

        The function is sent as source text, and the owner approves it once.

        Args:
            function: A plain `def` in a file or a cell; it imports what it needs inside. It gets
                the rows of a block as a pandas frame and returns a number, or numbers by name.
            outputs: The declared range of each number: name -> (lower, upper[, step]). Choose the
                ends from public knowledge, not from the rows.
            epsilon: The price of the run. If every output has an `error`, the most that the run may
                cost; it may then be left out.
            error: The wanted error of outputs, by name: their half-width at 95 %.
            split: The share of the price for each number of an output, by name; 1 by default.
            columns: The columns that the function reads; all, if left out.
            environment: The name of the packages that the function needs, as the owner added them.
            blocks: How many blocks the people are split into; if left out, 50, or fewer for a
                data card with fewer than 500 people.
            trim: How many of the lowest and of the highest block results are left out.
            take: How the block results are combined: "mean" (if left out), "median", or "auto": as
                the last `plan` of this function proposed.
            delta: The delta to spend; the card's `delta_per_request` if left out.
            cpu_s: The CPU time limit of one block, in seconds.
            memory_mb: The memory limit of one block, in MB.
            disk_mb: The disk space limit of one block, in MB.
            timing: How blocks are timed: "isolated", or in a "batch", which is faster. If left out,
                it is a batch if the operator and the owner allow it.
            job_s: The time of all blocks of a batch together, in seconds. Blocks that have not
                ended by then count as the middle of the range.
            op: Your own id of the request. A retry with the same id pays once.

        Returns:
            The noisy mean or median of each number over the blocks, and the receipt.

        Raises:
            Refused: `bad-pipeline`, `pipeline-waits` until the owner approves the function, or
                `budget-exceeded`.
        """
        terms = RunTerms(
            error=error, split=split, blocks=blocks, trim=trim, take=take, delta=delta,
            cpu_s=cpu_s, memory_mb=memory_mb, disk_mb=disk_mb, timing=timing, job_s=job_s, op=op,
        )  # fmt: skip
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
    ) -> SubmittedProgram:
        """Submit a function for the owner's approval.

        Args:
            function: A plain `def` in a file or a cell; it imports what it needs inside. It gets
                the rows of a block as a pandas frame and returns a number, or numbers by name.
            outputs: The declared range of each number: name -> (lower, upper[, step]). Choose the
                ends from public knowledge, not from the rows.
            columns: The columns that the function reads; all, if left out.
            environment: The name of the packages that the function needs, as the owner added them.

        Returns:
            Its digest, whether it is approved, and the noise that its numbers would get.

        Raises:
            Refused: `bad-pipeline` if the function or its ranges cannot be used.
        """
        body = handed_in_body(self.name, program_body(function, outputs), columns, environment)
        return SubmittedProgram(await self._vault.call("submit-pipeline", body))

    async def plan(  # noqa: PLR0913  # the terms of a trial
        self,
        function: Callable[[Any], object],
        *,
        outputs: Ranges,
        epsilon: Number,
        columns: Sequence[str] | None = None,
        people: int | None = None,
        environment: str = "",
        blocks: int | None = None,
        cpu_s: Number | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        timing: Literal["isolated", "batch"] | None = None,
        seed: str | None = None,
    ) -> BlocksPlan:
        """Try a function on synthetic people, for several numbers of blocks; nothing is spent.

        Args:
            function: A plain `def` in a file or a cell; it imports what it needs inside. It gets
                the rows of a block as a pandas frame and returns a number, or numbers by name.
            outputs: The declared range of each number: name -> (lower, upper[, step]). Choose the
                ends from public knowledge, not from the rows.
            epsilon: The price that the noise is computed for.
            columns: The columns that the function reads; all, if left out.
            people: How many synthetic people the trial uses; by default the card's size.
            environment: The name of the packages that the function needs, as the owner added them.
            blocks: The only number of blocks to try; several, if left out.
            cpu_s: The CPU time limit of one block, in seconds.
            memory_mb: The memory limit of one block, in MB.
            disk_mb: The disk space limit of one block, in MB.
            timing: How blocks are timed: "isolated", or in a "batch" if the operator and the owner
                allow it.
            seed: The seed of the synthetic people; the same seed makes the same people.

        Returns:
            The noise and the bias for each number of blocks, and what each trial did and printed.

        Raises:
            Refused: `bad-pipeline` if the function or its ranges cannot be used.
        """
        terms = PlanTerms(
            people=people, blocks=blocks, cpu_s=cpu_s, memory_mb=memory_mb, disk_mb=disk_mb,
            timing=timing, seed=seed,
        )  # fmt: skip
        handed_in = await self.submit(
            function, outputs=outputs, columns=columns, environment=environment
        )
        body = run_body(self.name, handed_in, epsilon, terms_body(terms))
        return BlocksPlan(await self._vault.call("plan-pipeline", body))

    def builder(self) -> Builder:
        """Return an empty question about this data set, to which steps are added."""
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
