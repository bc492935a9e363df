"""List the files to mutate, and the tests of each, the nearest and quickest first."""

from __future__ import annotations

from dataclasses import dataclass

NOISE, PRICE, ACCOUNTING = "noise", "price", "accounting"
SUMS, KERNEL, BESIDE = "secure sums", "kernel", "beside"
AREAS = (NOISE, PRICE, ACCOUNTING, SUMS, KERNEL)  # of which a sample has as many mutants each


@dataclass(frozen=True)
class Target:
    """A source file, what it belongs to, and its tests."""

    area: str
    path: str
    tests: tuple[str, ...]


def _targets(area: str, folder: str, table: dict[str, str]) -> tuple[Target, ...]:
    """Return the targets of a folder; tests are named without `test_` and ending."""
    return tuple(
        Target(area, f"src/sfumato/{folder}/{name}.py", tuple(map(_test, tests.split())))
        for name, tests in table.items()
    )


def _test(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"tests/{folder}/test_{file}.py"


_N = "core/noise/"
_VERBS = "plan/every_verb_attains plan/margins plan/moments plan/plan door/charged_events"
TARGETS = (
    *_targets(
        NOISE,
        "core/noise",
        {
            "above": f"{_N}above plan/search",
            "added": f"{_N}added {_N}blend",
            "blend": f"{_N}blend {_N}added",
            "bounds": f"{_N}bounds plan/search",
            "certified": f"{_N}certified {_N}table {_N}gaussian",
            "chooser": "plan/search plan/plan door/charged_events",
            "choosing": f"{_N}choosing {_N}quantile {_N}permute_and_flip",
            "gaussian": f"{_N}gaussian {_N}table",
            "geometric": f"{_N}geometric {_N}table {_N}laplace",
            "kind": f"{_N}several {_N}blend {_N}added core/quotient",
            "laplace": f"{_N}laplace {_N}table",
            "median": f"{_N}median door/pipelines",
            "permute_and_flip": f"{_N}permute_and_flip plan/search",
            "powers": f"{_N}powers {_N}choosing",
            "quantile": f"{_N}quantile",
            "reach": f"{_N}added {_N}blend {_N}several plan/margins",
            "running": f"{_N}several plan/running plan/running_reach",
            "selection": f"{_N}selection {_N}threshold client/private_keys",
            "several": f"{_N}several plan/running door/running_at_the_door",
            "skellam": f"{_N}skellam core/secure/private core/sampled",
            "spanning": f"{_N}spanning",
            "sure": "core/quotient plan/margins",
            "table": f"{_N}table {_N}geometric {_N}gaussian",
            "threshold": f"{_N}threshold client/private_keys",
            "top": f"{_N}top plan/search",
            "tree": f"{_N}tree {_N}several {_N}stream plan/running",
            "weighted": f"core/quotient {_N}blend",
        },
    ),
    *_targets(
        PRICE,
        "plan",
        {
            "price": "plan/plan plan/margins plan/moments plan/search"
            " door/top_up client/private_keys door/charged_events",
            "split": "plan/plan plan/margins plan/moments",
            "plan": _VERBS,
            "foreseen": "plan/margins plan/formulas",
            "top_up": "door/top_up",
            "forms": "plan/formulas core/quotient plan/margins client/formulas",
            "verbs/choice": "plan/search plan/every_verb_attains client/private_choices"
            " door/charged_events",
            "verbs/count": _VERBS,
            "verbs/mean": _VERBS,
            "verbs/moments": _VERBS,
            "verbs/pairs": _VERBS,
            "verbs/ranges": _VERBS,
            "verbs/running": "plan/running plan/running_reach",
            "verbs/search": "plan/search plan/every_verb_attains door/charged_events",
            "verbs/sum": _VERBS,
            "verbs/variance": _VERBS,
            "verbs/verb": f"{_VERBS} plan/curves_and_totals",
            "summed": "plan/summed core/secure/private",
            "training": "plan/training plan/training_fronts",
            "stream": "plan/stream core/noise/stream",
            "pipeline": "plan/programs door/pipeline_plans door/pipeline_rules door/pipeline_noise"
            " door/pipelines",
        },
    ),
    *_targets(
        ACCOUNTING,
        "core",
        {
            "account": "contract/ledger_all contract/ledger_store core/filters",
            "budget": "core/budget core/filters",
            "compose": "core/compose core/filters core/against_dp_accounting",
            "filters": "core/filters",
            "loss": "core/loss core/filters core/compose",
            "quotient": "core/quotient plan/formulas",
            "ratio": "core/ratio core/noise/blend",
            "renyi": "core/noise/skellam core/sampled core/secure/private plan/training",
            "sampled": "core/sampled",
            "sensitivity": "core/sensitivity",
        },
    ),
    *_targets(
        ACCOUNTING,
        "door",
        {
            "ledger": "door/release door/asked_together door/handed_out client/windows"
            " contract/recovery",
            "locks/dp": "door/release door/pipeline_noise client/private_keys twins/misfit"
            " twins/choose door/top_up door/running_at_the_door",
            "locks/secure_sum": "federated/sums federated/samples federated/training",
            "pool": "door/pool",
        },
    ),
    *_targets(
        SUMS,
        "core/secure",
        {
            "collector": "core/secure/frames core/secure/round core/secure/liars"
            " core/secure/neighbours core/secure/unmasking",
            "dithered": "core/secure/dithered",
            "frames": "core/secure/frames core/secure/round core/secure/liars"
            " core/secure/neighbours",
            "masks": "core/secure/round core/secure/unmasking core/secure/neighbours",
            "participant": "core/secure/round core/secure/liars core/secure/neighbours"
            " core/secure/unmasking core/secure/kept",
            "private": "core/secure/private plan/summed",
            "rounding": "core/secure/rounding core/secure/dithered",
            "sharing": "core/secure/sharing core/secure/liars",
            "terms": "core/secure/liars core/secure/neighbours core/secure/unmasking"
            " core/secure/round",
        },
    ),
    *_targets(
        KERNEL,
        "engines",
        {
            "kernel": "engines/kernel",
            "kernel_order": "engines/kernel",
            "kernel_slots": "engines/kernel_slots engines/kernel",
            "kernel_sums": "engines/kernel engines/kernel_slots",
            "kernel_types": "engines/kernel engines/kernel_slots engines/packed",
        },
    ),
    *_targets(BESIDE, "core/crowd", {"grouping": "core/crowd/measures core/crowd/recoding"}),
    *_targets(BESIDE, "services/access", {"access": "service/tokens service/reader"}),
    *_targets(BESIDE, "engines", {"secluded": "engines/secluded engines/worker"}),
)
