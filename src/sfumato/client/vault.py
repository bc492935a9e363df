"""The researcher's client: a vault (a service for private data) and its data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, ClassVar, Final, Literal, Protocol

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
from sfumato.client.progress import show_progress
from sfumato.client.query_builder import Builder, Steps
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.client import DataSetAirlock
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

NAMED: Final = 20  # the most data sets that a refusal lists


class Transport(Protocol):
    """The interface through which the client calls services, in this process or over HTTP."""

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation); return the JSON of its answer or of its refusal."""
        ...


class Vault:
    """A collection of data sets; `vault["clinic"]` is one of them.

    `"clinic" in vault`, `len(vault)` and `for data_set in vault` cover the data sets that you may
    ask. Each of them sends one request to the service.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # case-folded names in the last list of data sets
        self._listed: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> DataSet:
        """Return a data set that you may ask, by its name.

        The list of data sets is fetched once, and again for a name that is not on it.

        Args:
            name: The name of the data set.

        Returns:
            The data set.

        Raises:
            Refused: `unknown-data-set` if you may neither ask nor review such a data set; it lists
                those that you may ask.
        """
        if not self._has_listed(name):
            try:
                names = self._names()
            except Refused as refused:
                if refused.code != "not-allowed":
                    raise
                # a token may allow queries, but not the list of data sets
                return DataSet(self, name)
            if not self._has_listed(name) and not self._is_reviewed(name):
                raise _no_data_set(name, names)
        return DataSet(self, name)

    def __contains__(self, name: object) -> bool:
        """Return True if you may ask a data set of that name now."""
        self._names()
        return self._has_listed(name.name if isinstance(name, DataSet) else name)

    def __len__(self) -> int:
        """Return how many data sets you may ask."""
        return len(self._names())

    def __bool__(self) -> bool:
        """Return True, because an empty vault is still a vault; no request is sent."""
        return True

    def __iter__(self) -> Iterator[DataSet]:
        """Yield the data sets that you may ask, each as an object."""
        return iter([DataSet(self, name) for name in self._names()])

    def _names(self) -> list[str]:
        """Return the names of the data sets that the user may ask, as the service lists them."""
        found = self.call("data-sets", {})["data_sets"]
        names = [str(card["name"]) for card in found] if isinstance(found, list) else []
        self._listed = frozenset(map(str.casefold, names))
        return names

    def _is_reviewed(self, name: str) -> bool:
        """Return True if the user may review files for output checking of a data set."""
        try:
            self.call("airlock", {"data_set": name})
        except Refused as refused:
            if refused.code in ("service-down", "too-many"):
                raise
            return False
        return True

    def _has_listed(self, name: object) -> bool:
        return isinstance(name, str) and name.casefold() in self._listed

    def history(self, limit: int = 50) -> History:
        """Return your own questions, the newest first.

        Args:
            limit: How many at most.

        Returns:
            For each: its time, data set, price and operation id.

        Raises:
            Refused: `bad-request` if `limit` is not 1 to 1000, `not-in-language` for a
                `FederatedVault`; over HTTP also `service-down` or `not-signed-in`.
        """
        return History(self.call("history", {"limit": limit}))

    def answer(self, op: str) -> Answer:
        """Fetch one of your earlier answers by its operation id; free. It may be a program's.

        Args:
            op: The operation id, as in `history()` or in the answer's receipt.

        Returns:
            The stored answer.

        Raises:
            Refused: `answer-unknown` if you have no answer under that id.
        """
        try:
            return Answer.of(self.call("answer", {"op": op}))
        except Refused as refused:
            if refused.code != "answer-unknown":
                raise
            run = run_named(self.call("history", {"limit": MOST_PAST}), op)
            if run is None:
                raise
            return Answer.of(self.call("pipeline-answer", run))

    def has_receipt(self, receipt: Json) -> bool:
        """Check that the vault's ledger still has a receipt's entry.

        Args:
            receipt: `answer.receipt`, or the `receipt` of an answer's stored JSON.

        Returns:
            True if the ledger has the entry. Otherwise the ledger lost entries, and is now frozen.

        Raises:
            Refused: `answer-unknown` if this vault did not sign the receipt.
        """
        return self.call("present-receipt", {"receipt": receipt})["stands"] is True

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation) of the service by its name.

        Args:
            verb: The name of the verb, as in the table of HTTP routes (wire/verb_table.py).
            body: Its arguments.

        Returns:
            The service's answer as JSON.

        Raises:
            Refused: Any refusal of the service.
        """
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
    """A data set of a vault. It holds no rows, only its name and the vault."""

    _called: ClassVar[str] = "A data set"

    def __init__(self, vault: Vault, name: str) -> None:
        self._vault = vault
        self.name = name

    @property
    def card(self) -> CardView:
        """Return the data card: the owner's public description of the data set."""
        return CardView(self._vault.call("card", {"data_set": self.name}))

    @property
    def budget(self) -> Budget:
        """Return the privacy budget of the data set, its people and yourself: cap, spent, left."""
        return Budget(self._vault.call("budget", {"data_set": self.name}))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column names of the data set's main table, from the card.

        Types and bounds, and the columns of other tables, are in `card`.
        """
        return column_names(self.card)

    @named_terms(no_question_term)
    def ask(  # noqa: PLR0913  # the terms of a question
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
        with show_progress("asking"):
            return Answer.of(self._vault.call("ask", self._body(question, terms)))

    @named_terms(no_question_term)
    def price(  # noqa: PLR0913  # the terms of a question
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
        return Price(self._vault.call("price", self._body(question, terms)))

    def stream(self, name: str) -> Answer:
        """Return a stream's running counts, for the periods that the owner has closed; free.

        Args:
            name: The name of the stream.

        Returns:
            A row for each closed period.

        Raises:
            Refused: `stream-unknown` if the data set has no such stream.
        """
        return Answer.of(self._vault.call("stream", {"data_set": self.name, "stream": name}))

    def twin(
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
        return Twin(self._vault.call("twin", {**body, **more}))

    @named_terms(no_twin_term)
    def dp_twin(  # noqa: PLR0913  # the terms of a twin
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
        with show_progress("measuring"):
            body = {"data_set": self.name, **terms_body(terms)}
            return Twin(self._vault.call("dp-twin", body))

    @named_terms(no_twin_term)
    def dp_twin_price(  # noqa: PLR0913  # the terms of a twin
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
        return TwinPrice(self._vault.call("dp-twin-price", body))

    @named_terms(no_run_term)
    def run(  # noqa: PLR0913  # the terms of a run
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
        handed_in = self.submit(function, outputs=outputs, columns=columns, environment=environment)
        body = run_body(self.name, handed_in, epsilon, terms_body(terms))
        with show_progress("running"):
            return Answer.of(self._vault.call("run-pipeline", body))

    def submit(
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
        return SubmittedProgram(self._vault.call("submit-pipeline", body))

    def plan(  # noqa: PLR0913  # the terms of a trial
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
        handed_in = self.submit(function, outputs=outputs, columns=columns, environment=environment)
        body = run_body(self.name, handed_in, epsilon, terms_body(terms))
        return BlocksPlan(self._vault.call("plan-pipeline", body))

    @property
    def airlock(self) -> DataSetAirlock:
        """Return the airlock of this data set: output checking of files before they leave."""
        return DataSetAirlock(self._vault.call, self.name)

    def builder(self) -> Builder:
        """Return an empty question about this data set, to which steps are added."""
        return Builder(self.name, self)

    def _body(self, question: str | Builder, terms: Mapping[str, object]) -> Json:
        return question_body(self.name, question, terms)

    def __repr__(self) -> str:
        return f"DataSet({self.name!r})"

    def _repr_html_(self) -> str:
        return self.card._repr_html_()


def _no_data_set(name: object, names: Sequence[str]) -> Refused:
    """Return the refusal of an unknown data set; it lists the data sets that the user may ask."""
    if not names:
        next_step = "You may not ask any data set yet. Ask the owner for access."
    else:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        next_step = f"You may ask: {', '.join(names[:NAMED])}{more}."
    return Refused(
        "unknown-data-set", f"There is no data set {name!r} that you may ask.", next_step
    )
