"""The pipeline service: submit, approve, price, plan and run programs.

An owner approves each program once, by its digest.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Final

from sfumato.dp.budget import read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.estimator_comparison import name_of
from sfumato.features.pipelines.image_request_service import ImageRequests
from sfumato.features.pipelines.means_of_columns import sql_offers
from sfumato.features.pipelines.model import (
    APPROVED,
    WAITING,
    PipelineStore,
    Submitted,
    TrialChoice,
    bad_run,
)
from sfumato.features.pipelines.program_folder import with_line_feeds
from sfumato.features.pipelines.program_plan import (
    AUTO,
    BLOCKS,
    MEAN,
    MEDIAN,
    Program,
    Run,
    read_program,
    read_run,
)
from sfumato.features.pipelines.program_review import read_checked
from sfumato.features.pipelines.program_trial import (
    MAX_PEOPLE,
    Table,
    blocks_of_plan,
    blocks_to_try,
    can_run,
    check_trial,
    held_s,
    run_trial,
)
from sfumato.features.pipelines.program_warnings import (
    answer_warnings,
    default_blocks,
    default_words,
    missing_warnings,
    most_people,
    price_warnings,
    review_warnings,
    too_many_blocks,
)
from sfumato.features.pipelines.release import (
    PipelinePorts,
    RunOrder,
    is_paid,
    no_sandbox,
    planned_s,
    run_pipeline,
    stored_answer,
)
from sfumato.features.pipelines.review_service import ProgramReviews, submitted_json
from sfumato.features.pipelines.rule_service import PipelineRules, by_rule
from sfumato.features.pipelines.run_budget import budget_warnings
from sfumato.features.pipelines.run_history_service import run_terms, runs_json, stored_run
from sfumato.features.pipelines.schema import (
    DecidePipeline,
    OnePipeline,
    OnePipelineRun,
    PipelineTerms,
    PlanPipeline,
    RunPipeline,
)
from sfumato.features.pipelines.trial_limits import Counted, TrialLimits
from sfumato.query.expression import canonical_json
from sfumato.release.accounts import left_to_pay, smallest_next
from sfumato.release.guarded_release import accounts_paying
from sfumato.release.permissions import check_not_frozen, listing_to_query
from sfumato.release.release_order import Asker, Release
from sfumato.sandbox.ports import BATCH, ISOLATED, SandboxLimits, SandboxStopped, SplitOrder
from sfumato.sandbox.program_environment import kind_and_digest, read_own
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account
from sfumato.vault.ports import Catalogue, Clock, Listing
from sfumato.vault.users import Caller

SHORT_DIGEST: Final = 12  # the fewest letters of a digest that name a program
MAX_HANDED_IN: Final = 1000  # the most programs of one author on one data set, in any state
MAX_WAITING: Final = 20  # the most waiting programs of one author on one data set


@dataclass(frozen=True)
class Unsplit:
    """A stand-in for an engine that can't split rows into blocks; it refuses every run."""

    kind: str

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Refuse, because this engine can't split rows into blocks."""
        raise _not_on(self.kind)

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Refuse, because this engine can't split rows into a file for each person."""
        raise _not_on(self.kind)

    def free_disk_bytes(self, table: str) -> int:
        """Return 0, because this engine has no disk space for blocks."""
        return 0


@dataclass(frozen=True)
class Pipelines:
    """The service of one vault that submits, approves, prices, plans and runs programs."""

    door: PipelinePorts
    store: PipelineStore
    catalogue: Catalogue
    clock: Clock
    dice: RandomSource
    rules: PipelineRules
    brought: Callable[[], Sequence[str]]  # returns the names of this machine's program environments
    reviews: ProgramReviews
    images: ImageRequests
    trials: TrialLimits
    timing: str = ISOLATED  # BATCH if the operator lets reviewed programs run in batches
    # Only one plan at a time holds its synthetic people in memory.
    planning: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def submit(self, caller: Caller, data_set: str, shape: Mapping[str, object]) -> Json:
        """Submit a program; it waits for the owner, unless they submit it or it matches a rule."""
        listing, asker = self._listing(caller, data_set)
        own = read_own(shape.get("environment"))
        here = self.door.sandbox.environment(own)
        program = read_program(listing.card, with_line_feeds(shape), here)
        errors = _errors(program, shape.get("epsilon", 1), listing.card)
        found = self.store.find(listing.card.name, program.digest)
        if found is None or caller.user not in found.authors:
            found = self._taken_in(listing, program, asker)
        return {**submitted_json(_seen_by(caller, listing, found)), "errors": errors}

    def decide(self, caller: Caller, asked: DecidePipeline) -> Json:
        """Approve a program up to an epsilon per run, or decline it; the ledger notes it."""
        listing, _ = self._listing(caller, asked.data_set)
        self._check_owner(caller, listing)
        found = self._found(listing, asked.pipeline)
        most = read_epsilon(asked.most_epsilon) if asked.state == APPROVED else Fraction(0)
        review = read_checked(asked.checked, asked.reason)
        if asked.state == APPROVED:
            self.reviews.check(found, review[0], _triers(caller, listing, found))
        now = replace(found, state=asked.state, most_epsilon=most, timing=asked.timing)
        made = self._decided(caller.user, found, now, review)
        return self.reviews.shown(listing.card, self.door.sandbox, [made])[0]

    def one(self, caller: Caller, asked: OnePipeline) -> Json:
        """Return one program with all that its review needs, to its authors and the owner."""
        listing, _ = self._listing(caller, asked.data_set)
        found = self._found(listing, asked.pipeline)
        if caller.user not in (listing.owner, *found.authors):
            raise _unknown()
        seen, triers = _seen_by(caller, listing, found), _triers(caller, listing, found)
        shown = self.reviews.shown(listing.card, self.door.sandbox, [seen])[0]
        kept = next(iter(self.reviews.trials(found, triers)), None)
        program = _program_of(found, listing) if shown["is_current"] else None
        return {
            **shown,
            "may_decide": caller.user == listing.owner,
            "timings": [ISOLATED, BATCH] if self.timing == BATCH else [ISOLATED],
            "errors": None if program is None else _errors(program, 1, listing.card),
            "warnings": review_warnings(json.loads(found.program), self._tried(found, triers)),
            **self.reviews.detail(seen, self.store.of(listing.card.name), kept),
        }

    def check_run(self, caller: Caller, asked: RunPipeline) -> None:
        """Refuse a run that could not begin now: unapproved, changed, or with unusable terms."""
        listing, _ = self._thawed(caller, asked.data_set)
        found = self._found(listing, asked.pipeline)
        self._check_seen(caller, listing, found)
        run, _ = self._run_of(caller, listing, found, asked)
        _check_approved(found, run, self.reviews.reason(found))
        self._check_same(found, run)
        _check_blocks(listing.card, run)

    def runs(self, caller: Caller, data_set: str) -> Json:
        """Return the caller's own runs of programs on a data set, newest first."""
        listing, _ = self._listing(caller, data_set)
        return {"runs": runs_json(self.door.ledger, caller.user, listing.card.name)}

    def answer(self, caller: Caller, asked: OnePipelineRun) -> Release:
        """Return the stored answer of one of the caller's runs again; nothing is charged."""
        listing, asker = self._listing(caller, asked.data_set)
        terms = run_terms(self.door.ledger, caller.user, listing.card.name, asked.op)
        found = self._found(listing, terms["digest"])
        run = stored_run(found, terms)
        order = RunOrder(
            listing.card, listing.table, run, asker, asked.op, chosen_by=terms["chosen_by"],
            rule=terms["rule"],
        )  # fmt: skip
        release = stored_answer(self.door.ledger, order)
        triers = _triers(caller, listing, found)
        warnings = answer_warnings(run, self._tried(found, triers), release.answer)
        warnings += missing_warnings(self.reviews.last_plan(found, triers), run.blocks)
        return replace(release, answer={**release.answer, "warnings": warnings})

    def set_rule(self, caller: Caller, data_set: str, shape: object) -> Json:
        """Create a rule that approves matching programs from now on; only the owner may do so."""
        listing, _ = self._listing(caller, data_set)
        self._check_owner(caller, listing)
        return self.rules.set(caller, listing.card, shape)

    def end_rule(self, caller: Caller, data_set: str, rule: str) -> Json:
        """End an approval rule; only the owner may do so."""
        listing, _ = self._listing(caller, data_set)
        self._check_owner(caller, listing)
        return self.rules.end(caller, listing.card, rule)

    def all_rules(self, caller: Caller, data_set: str) -> Json:
        """Return a data set's approval rules: all for its owner, else those that name the user."""
        listing, asker = self._listing(caller, data_set)
        return self.rules.all(caller, listing, asker)

    def all(self, caller: Caller, data_set: str) -> Json:
        """Return a data set's programs: all for its owner, for others their own.

        The reply also lists the program environments of this machine, with their digests.
        """
        listing, _ = self._listing(caller, data_set)
        found = self.store.of(listing.card.name)
        mine = [
            _seen_by(caller, listing, one)
            for one in found
            if caller.user in (listing.owner, *one.authors)
        ]
        environments = [self._environment(name) for name in self.brought()]
        shown = self.reviews.shown(listing.card, self.door.sandbox, mine)
        may_decide = caller.user == listing.owner
        return {"pipelines": shown, "environments": environments, "may_decide": may_decide}

    def price(self, caller: Caller, asked: PipelineTerms) -> Json:
        """Return a run's price, its error and whether it fits the budget; nothing is spent."""
        listing, asker = self._listing(caller, asked.data_set)
        self.door.ledger.check_history()  # the sums of a rolled-back ledger are too low
        found = self._found(listing, asked.pipeline)
        self._check_seen(caller, listing, found)
        run, chosen = self._run_of(caller, listing, found, asked)
        is_free = is_paid(
            self.door.ledger, RunOrder(listing.card, listing.table, run, asker, "a price")
        )
        if not is_free:
            _check_blocks(listing.card, run)
        accounts = accounts_paying(self.door.ledger, listing.card, asker)
        triers = _triers(caller, listing, found)
        tried = self._tried(found, triers)
        short = [] if is_free else self._too_small(listing, run, asked, accounts)
        gaps = missing_warnings(self.reviews.last_plan(found, triers), run.blocks)
        warnings = [
            *self.reviews.missing(found), *short, *_over(found, run),
            *price_warnings(run, tried), *gaps,
        ]  # fmt: skip
        return {
            **chosen,
            "warnings": warnings,
            "free": is_free,
            "fits": not short,
            "left": left_to_pay(accounts[1], accounts),
            "epsilon": float(run.epsilon),
            "delta": float(run.spent_delta),
            "mechanism": run.mechanism,
            "error": run.margins(),
            "split": run.split_json(),
            "error_is": "ranks" if run.take == MEDIAN else "values",
            "says": run.in_words(),
            "timing": run.timing_says,
            "blocks": run.blocks,
            "seconds": self._planned_s(listing.card, run),
            "state": found.state,
            "spent": False,
        }

    def planned_s(self, caller: Caller, asked: RunPipeline) -> int | None:
        """Return how many seconds a run takes by its terms, whatever the program does, or None."""
        listing, _ = self._listing(caller, asked.data_set)
        found = self._found(listing, asked.pipeline)
        self._check_seen(caller, listing, found)
        run, _ = self._run_of(caller, listing, found, asked)
        return self._planned_s(listing.card, run)

    def plan(self, caller: Caller, asked: PlanPipeline) -> Json:
        """Estimate a program's noise and bias for several block counts, on synthetic people."""
        listing, asker = self._listing(caller, asked.data_set)
        self.door.ledger.check_history()
        card, found = listing.card, self._found(listing, asked.pipeline)
        self._check_seen(caller, listing, found)
        program = _program_of(found, listing)
        is_owner = caller.user == listing.owner
        terms = self._timed(found, asked, is_trial_of_owner=is_owner)
        count = _people(most_people(card) if asked.people is None else asked.people)
        first, *more = blocks_of_plan(count, terms.get("blocks"))
        least = _planned(program, terms, first, card.delta_per_request)
        runs = [least] + [
            _planned(program, terms, blocks, card.delta_per_request)
            for blocks in more
            if can_run(least, blocks)
        ]
        check_trial(runs, card, count, is_trusted=is_owner or found.state == APPROVED)
        seed = asked.seed
        said = seed if isinstance(seed, str) and seed else self.dice.draw(8).hex()
        table = None
        try:
            with self._trial_of(caller, held_s(runs, count)) as counted, self.planning:
                table = run_trial(self.door.sandbox, card, runs, count, said)
                if counted is not None:
                    counted.took(table.took_s)
        except SandboxStopped:
            table = None
        if table is None:
            raise no_sandbox()
        gave = [one.name for one in program.outputs if one.name not in table.never]
        trial = f"{count:,} synthetic people, epsilon {float(runs[0].epsilon):g}, seed {said}"
        choices = _choices(table, trial)
        plan: Json = {
            "warnings": table.warnings(),
            "epsilon": float(runs[0].epsilon),
            "people": count,
            "seed": said,
            "at": [line.as_json() for line in table.lines],
            "trials": [one.as_json() for one in table.trials],
            "proposed": table.proposed,
            "choice": _choice_json(choices),
            "in_sql": sql_offers(card, table.likely, table.means),
            "silent": list(table.silent),
            "never": list(table.never),
            "says": table.says(),
            "spent": False,
        }
        gaps = [] if table.is_stopped else missing_warnings(plan)
        plan["warnings"] = [*table.warnings(), *gaps]
        if caller.user not in (listing.owner, *found.authors):
            # what a run prints, and the files that it leaves, may quote the program's text
            plan["trials"] = []
        elif not table.is_stopped:
            # nobody else's trial changes what a run takes, or what its price warns of
            self.store.add_trial(found.data_set, found.trials_of(caller.user), gave)
            self.store.set_choices(found.data_set, found.trials_of(caller.user), choices)
            self.reviews.keep_trial(found, caller.user, plan)
        # not kept with the trial, because the balance is the caller's own
        accounts = accounts_paying(self.door.ledger, card, asker)
        short = self._too_small(listing, table.likely, asked, accounts)
        return {**plan, "warnings": [*short, *table.warnings(), *gaps]}

    def run(self, caller: Caller, asked: RunPipeline) -> Release:
        """Run an approved program and release its private averages or medians."""
        if isinstance(self.door.engine, Unsplit):
            raise _not_on(self.door.engine.kind)
        listing, asker = self._thawed(caller, asked.data_set)
        found = self._found(listing, asked.pipeline)
        self._check_seen(caller, listing, found)
        run, chosen = self._run_of(caller, listing, found, asked)
        _check_approved(found, run, self.reviews.reason(found))

        def may_still() -> None:  # checked again, as the run may wait for a sandbox before it pays
            self._thawed(caller, asked.data_set)
            now = self._found(listing, asked.pipeline)
            _check_approved(now, run)
            self._check_timing(now, run.limits)
            self.rules.check(now, run, asker)

        self._check_same(found, run)
        op = self.dice.draw(16).hex() if asked.op is None else asked.op
        order = RunOrder(
            listing.card, listing.table, run, asker, op, may_still=may_still,
            may_pay=partial(_check_blocks, listing.card, run), **chosen,
        )  # fmt: skip
        with self.rules.taken(found, order) as held:
            release = run_pipeline(self.door, held)
        triers = _triers(caller, listing, found)
        warnings = answer_warnings(run, self._tried(found, triers), release.answer)
        warnings += missing_warnings(self.reviews.last_plan(found, triers), run.blocks)
        return replace(release, answer={**release.answer, "warnings": warnings})

    # --- helpers ------------------------------------------------------------------------------

    def _trial_of(self, caller: Caller, seconds: float) -> AbstractContextManager[Counted | None]:
        """Count a trial of the caller in a served vault; elsewhere nobody waits for it."""
        return self.trials.taken(caller.user, seconds) if caller.token else nullcontext()

    def _environment(self, name: str) -> Json:
        """Return an environment's kind and digest, and the name from which an image was pulled."""
        kind, digest = kind_and_digest(name)
        known = self.reviews.environment(name)
        source = "" if known is None else known.source
        return {"name": name, "kind": kind, "digest": digest, "source": source}

    def _planned_s(self, card: Card, run: Run) -> int | None:
        planned = planned_s(self.door.sandbox, card, run)
        return None if planned is None else math.ceil(planned)

    def _run_of(
        self, caller: Caller, listing: Listing, found: Submitted, asked: PipelineTerms
    ) -> tuple[Run, dict[str, str]]:
        """Return the run that is asked for, and in words what chose the terms that it left out."""
        terms, chosen = self._chosen(caller, listing, found, asked)
        if terms.get("blocks") is None:
            terms = {**terms, "blocks": default_blocks(listing.card)}
            chosen = {"chosen_by": default_words(listing.card)}
        program = _program_of(found, listing)
        return read_run(program, terms, listing.card.delta_per_request), chosen

    def _too_small(
        self, listing: Listing, run: Run, asked: PipelineTerms, accounts: Sequence[Account]
    ) -> list[str]:
        """Return a warning if the asker's budget is too small for the run, with what would fit."""
        first = {"blocks": run.blocks, "trim": run.trim, "take": run.take}

        def reread(terms: Mapping[str, object]) -> Run:
            said = {**_terms(asked), **first, **terms}
            return read_run(run.program, said, listing.card.delta_per_request)

        return budget_warnings(run, accounts, smallest_next(accounts), reread)

    def _timed(
        self, found: Submitted, asked: PipelineTerms, *, is_trial_of_owner: bool = False
    ) -> dict[str, object]:
        """Return the terms of a run with its timing: a batch if operator and owner allow it.

        The owner may also try a program in a batch that they have not allowed yet, if they ask for
        it: a trial is on synthetic people, and so they allow nothing untried.
        """
        terms = _terms(asked)
        may_batch = self.timing == BATCH and found.may_batch
        if terms.get("timing") is None:
            terms["timing"] = BATCH if may_batch else ISOLATED
        may_batch = may_batch or (self.timing == BATCH and is_trial_of_owner)
        if terms["timing"] == BATCH and not may_batch:
            raise _no_batch(self.timing)
        return terms

    def _check_timing(self, found: Submitted, limits: SandboxLimits) -> None:
        """Refuse a batch that the operator does not allow, or the owner not any more."""
        if limits.is_batch and not (self.timing == BATCH and found.may_batch):
            raise _no_batch(self.timing)

    def _chosen(
        self, caller: Caller, listing: Listing, found: Submitted, asked: PipelineTerms
    ) -> tuple[dict[str, object], dict[str, str]]:
        """Return a run's terms; with `take` auto, those that the last trial proposed.

        The trial was on synthetic people, and is over before the run. So no row decides them. Also
        return which trial it was, for the price and the receipt.
        """
        terms = self._timed(found, asked)
        if terms.get("take") != AUTO:
            return terms, {}
        if terms.get("trim"):
            raise bad_run("take auto chooses the trim itself; leave out trim")
        choices = self._last_choices(caller, listing, found)
        blocks = terms.get("blocks")
        fitting = [one for one in choices if blocks is None or one.blocks == blocks]
        if not fitting:
            raise _no_choice(choices)
        one = fitting[0]
        named = f"{name_of(one.take, one.trim)} of {one.blocks} blocks"
        said = f"Chosen by the program's last trial: {named} ({one.trial})."
        terms = {**terms, "take": one.take, "trim": one.trim, "blocks": one.blocks}
        return terms, {"chosen_by": said}

    def _tried(self, found: Submitted, triers: Sequence[str]) -> tuple[str, ...] | None:
        """Return the outputs that gave a number in any trial of these users; None without one."""
        tried = [self.store.tried(found.data_set, found.trials_of(user)) for user in triers]
        gave = [names for names in tried if names is not None]
        return tuple(sorted({name for names in gave for name in names})) if gave else None

    def _last_choices(
        self, caller: Caller, listing: Listing, found: Submitted
    ) -> tuple[TrialChoice, ...]:
        """Return what the last of the trials proposed that count for the caller."""
        triers = _triers(caller, listing, found)
        order = [one.by for one in self.reviews.trials(found, triers)]
        for user in dict.fromkeys([*order, *triers]):
            key = found.trials_of(user)
            if self.store.tried(found.data_set, key) is not None:
                return self.store.choices(found.data_set, key)
        return ()

    def _taken_in(self, listing: Listing, program: Program, asker: Asker) -> Submitted:
        rule = None if asker.user == listing.owner else self.rules.fitting(program, asker)
        known = self.store.of(listing.card.name)
        if sum(asker.user in one.authors for one in known) >= MAX_HANDED_IN:
            raise Refused(
                "too-many",
                f"You have submitted {MAX_HANDED_IN:,} programs for this data set, which is the "
                "maximum.",
                "Run one of the submitted programs. They stay stored, so none can be removed.",
            )
        waiting = [one for one in known if one.state == WAITING]
        of_asker = sum(asker.user in one.authors for one in waiting)
        decided = {one.digest for one in known if one.state != WAITING}
        if rule is None and program.digest not in decided and of_asker >= MAX_WAITING:
            raise Refused(
                "too-many",
                f"{MAX_WAITING} of your programs wait for the owner's approval, which is the "
                "maximum.",
                "Wait until the owner has approved or declined some of them.",
            )
        text = canonical_json(program.stored_json())
        now = self.clock.now()
        made = Submitted(program.digest, listing.card.name, text, asker.user, now)
        # somebody else has handed it in, and its owner may have decided already
        if not self.store.add(made):
            made = self._found(listing, program.digest)
            if made.state != WAITING:
                return made
        if asker.user == listing.owner:
            most = listing.card.budget.epsilon
            own = replace(made, state=APPROVED, most_epsilon=most)
            return self._decided(asker.user, made, own)
        if rule is not None:
            ruled = replace(made, state=APPROVED, most_epsilon=rule.most_epsilon)
            return self._decided(by_rule(rule), made, ruled, is_rule=True)
        return made

    def _decided(
        self,
        by: str,
        found: Submitted,
        now: Submitted,
        review: tuple[tuple[str, ...], str] = ((), ""),
        *,
        is_rule: bool = False,
    ) -> Submitted:
        made = replace(now, decided_by=by, decided_at=self.clock.now())
        program, (checked, reason) = json.loads(found.program), review
        if _allows_less(found, made):  # stored first, so that no run is charged after the reply
            self.store.decide(made)
        self.door.ledger.note(
            f"pipeline-{made.state}",
            {
                "data_set": found.data_set,
                "digest": found.digest,
                "by": by,
                "most_epsilon": str(made.most_epsilon),
                "columns": program["columns"],
                "outputs": program["outputs"],
                **({"timing": made.timing} if made.may_batch else {}),
                **({"checked": list(checked)} if checked else {}),
            },
        )
        self.reviews.record(made, checked, reason)
        self.store.decide(made, only_waiting=is_rule)
        return made

    def _found(self, listing: Listing, digest: str) -> Submitted:
        found = self.store.find(listing.card.name, digest)
        if found is None and SHORT_DIGEST <= len(digest) < 64:
            alike = [o for o in self.store.of(listing.card.name) if o.digest.startswith(digest)]
            found = alike[0] if len(alike) == 1 else None
        if found is None:
            raise _unknown()
        return found

    def _check_seen(self, caller: Caller, listing: Listing, found: Submitted) -> None:
        """Refuse an unapproved program as unknown, except to its authors and the data's owner."""
        if caller.user not in (listing.owner, *found.authors) and found.state != APPROVED:
            raise _unknown()

    def _check_same(self, found: Submitted, run: Run) -> None:
        """Refuse a program if its text, card or libraries differ from those that were approved."""
        is_here = run.program.environment == self.door.sandbox.environment(
            run.program.own_environment
        )
        if not is_here or run.program.digest != found.digest:
            raise Refused(
                "pipeline-waits",
                "The Python libraries or the data card have changed since the program was "
                "approved.",
                "Submit the program again. With other libraries or another card, it needs a new "
                "approval.",
            )

    def _check_owner(self, caller: Caller, listing: Listing) -> None:
        if caller.user != listing.owner:
            raise Refused(
                "not-allowed",
                "Only the data set's owner approves programs.",
                "Ask the owner to approve it.",
            )

    def _thawed(self, caller: Caller, data_set: str) -> tuple[Listing, Asker]:
        """Return a data set and its caller, as `_listing` does; refuse if queries are blocked."""
        listing, asker = self._listing(caller, data_set)
        check_not_frozen(self.catalogue, listing, caller.user)
        return listing, asker

    def _listing(self, caller: Caller, data_set: str) -> tuple[Listing, Asker]:
        """Return a data set that the caller owns or may query, or refuse.

        Also return the caller as an asker, which a release needs.
        """
        found, groups = listing_to_query(self.catalogue, caller, data_set)
        return found, Asker(caller.user, groups)


def _seen_by(caller: Caller, listing: Listing, found: Submitted) -> Submitted:
    """Return a program as the owner sees it, with all its authors, or as one of the authors."""
    is_author = caller.user != listing.owner and caller.user in found.authors
    return found.seen_by(caller.user) if is_author else found


def _triers(caller: Caller, listing: Listing, found: Submitted) -> tuple[str, ...]:
    """Return the users whose trials of a program count for the caller.

    For the owner all of them count; for an author, their own and the owner's. For anybody else
    those of the owner and of the first author do.
    """
    if caller.user == listing.owner:
        return tuple(dict.fromkeys([listing.owner, *found.authors]))
    author = caller.user if caller.user in found.authors else found.by
    return tuple(dict.fromkeys([author, listing.owner]))


def _allows_less(before: Submitted, now: Submitted) -> bool:
    return now.state != APPROVED or (
        before.state == APPROVED
        and (now.most_epsilon < before.most_epsilon or now.may_batch < before.may_batch)
    )


def _terms(asked: PipelineTerms) -> dict[str, object]:
    """Return the terms of a run from a request: its fields without data set, program and ids."""
    return asked.as_body("data_set", "pipeline", "op", "people", "seed")


def _planned(program: Program, asked: Mapping[str, object], blocks: int, delta: Fraction) -> Run:
    terms = {**asked, "blocks": blocks, "trim": 0, "take": MEAN, "error": None}
    return read_run(program, terms, delta)


def _choices(table: Table, trial: str) -> list[TrialChoice]:
    """Return how a trial proposes to combine blocks, the least expected error first."""
    return [
        TrialChoice(line.run.blocks, line.best.take, line.best.trim, rank, trial)
        for rank, line in enumerate(table.choices)
    ]


def _choice_json(choices: Sequence[TrialChoice]) -> Json | None:
    if not choices:
        return None
    best = choices[0]
    named = name_of(best.take, best.trim)
    return {"blocks": best.blocks, "take": best.take, "trim": best.trim, "says": named}


def _no_choice(choices: Sequence[TrialChoice]) -> Refused:
    tried = ", ".join(str(one) for one in sorted(one.blocks for one in choices))
    return Refused(
        "bad-pipeline",
        f"The program's last trial proposed something for {tried} blocks only."
        if choices
        else "No trial of this program has proposed how to combine its blocks.",
        "Run `sfumato pipeline plan`, which tries the program on synthetic people for free, or "
        "choose --blocks, --trim and --take yourself.",
    )


def _people(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= MAX_PEOPLE:
        raise Refused(
            "bad-pipeline",
            "The data card does not say how many people there are, and neither does the request."
            if count is None
            else f"A trial has 2 to {MAX_PEOPLE:,} synthetic people.",
            "Give a number of synthetic people: --people on the command line, people= in Python.",
        )
    return count


def _check_blocks(card: Card, run: Run) -> None:
    """Refuse a run with more blocks than the card declares people, from public numbers only."""
    refused = too_many_blocks(card, run.blocks)
    if refused is not None:
        raise refused


def _over(found: Submitted, run: Run) -> list[str]:
    """Return a warning if an approved program may not spend that much in one run."""
    if found.state != APPROVED or run.epsilon <= found.most_epsilon:
        return []
    return [
        f"The run costs epsilon {float(run.epsilon):g}, and the program is approved up to "
        f"{float(found.most_epsilon):g} a run. Ask for less, or ask the owner to approve more."
    ]


def _check_approved(found: Submitted, run: Run, reason: str = "") -> None:
    if found.state != APPROVED or run.epsilon > found.most_epsilon:
        what = (
            f"It is approved up to epsilon {float(found.most_epsilon):g} a run, and this run costs "
            f"{float(run.epsilon):g}."
            if found.state == APPROVED
            else f"Its state is: {found.state}.{_why(reason)}"
        )
        raise Refused(
            "pipeline-waits", what, "Ask the owner, who sees it in `sfumato pipeline list`."
        )


def _why(reason: str) -> str:
    return f" The owner wrote: {reason.rstrip('.')}." if reason else ""


def _program_of(found: Submitted, listing: Listing) -> Program:
    """Parse a submitted program again, against the current card."""
    said = json.loads(found.program)
    return read_program(listing.card, said, said.get("environment", ""))


def _errors(program: Program, epsilon: object, card: Card) -> Json:
    """Return the margins of a program's noise at this epsilon, for several numbers of blocks.

    Only public numbers decide them.
    """
    people = most_people(card)
    rows = []
    for blocks in BLOCKS if people is None else blocks_to_try(people) or BLOCKS[:1]:
        run = read_run(program, {"blocks": blocks, "epsilon": epsilon}, card.delta_per_request)
        rows.append({"blocks": blocks, "noise": run.margins()})
    return {"epsilon": float(read_epsilon(epsilon)), "at": rows}


def _no_batch(timing: str) -> Refused:
    if timing != BATCH:
        return Refused(
            "pipeline-waits",
            "The operator of this vault lets no program run in batches.",
            "Leave the timing out, or ask the operator, who can allow it with `sfumato pipeline "
            "timing batch`.",
        )
    return Refused(
        "pipeline-waits",
        "The owner has not allowed this program to run in batches.",
        "Leave the timing out, or ask the owner to approve it with --timing batch.",
    )


def _unknown() -> Refused:
    return Refused(
        "pipeline-unknown",
        "The data set has no program with this digest that you may see.",
        "Submit the program, or find its digest with `sfumato pipeline list`.",
    )


def _not_on(kind: str) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The engine of this vault is {kind}, which cannot split rows into blocks yet.",
        "Pipelines need a vault on DuckDB, which `sfumato init` makes by default, or on Spark.",
    )
