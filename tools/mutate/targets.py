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


def _targets(area: str, table: dict[str, str]) -> tuple[Target, ...]:
    """Return an area's targets: paths below src/sfumato, tests below tests/, without `test_`."""
    return tuple(
        Target(area, f"src/sfumato/{name}.py", tuple(map(_test, tests.split())))
        for name, tests in table.items()
    )


def _test(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"tests/{folder}/test_{file}.py"


TARGETS = (
    *_targets(
        NOISE,
        {
            "dp/mechanisms/sparse_vector": "dp/mechanisms/sparse_vector query/aggregates/threshold_search",  # noqa: E501
            "dp/confidence/sum_of_draws": "dp/confidence/sum_of_draws dp/mechanisms/averaged_noise dp/confidence/approximate_sum_of_draws query/running_axis release/running_count",  # noqa: E501
            "dp/mechanisms/averaged_noise": "dp/mechanisms/averaged_noise dp/confidence/sum_of_draws",  # noqa: E501
            "dp/mechanisms/bounds_search": "dp/mechanisms/bounds_search query/aggregates/threshold_search",  # noqa: E501
            "dp/sampling/certified_arithmetic": "dp/sampling/certified_arithmetic dp/sampling/threshold_table dp/mechanisms/gaussian",  # noqa: E501
            "dp/mechanisms/private_choice": "query/aggregates/threshold_search query/plan release/charged_events",  # noqa: E501
            "dp/mechanisms/exponential": "dp/mechanisms/exponential dp/mechanisms/quantile dp/mechanisms/permute_and_flip",  # noqa: E501
            "dp/mechanisms/gaussian": "dp/mechanisms/gaussian dp/sampling/threshold_table",
            "dp/sampling/geometric": "dp/sampling/geometric dp/sampling/threshold_table dp/mechanisms/laplace",  # noqa: E501
            "dp/mechanisms/noise": "dp/confidence/approximate_sum_of_draws dp/mechanisms/averaged_noise dp/confidence/sum_of_draws dp/confidence/ratio_of_sums",  # noqa: E501
            "dp/mechanisms/laplace": "dp/mechanisms/laplace dp/sampling/threshold_table",
            "dp/mechanisms/median_of_blocks": "dp/mechanisms/median_of_blocks features/pipelines/release",  # noqa: E501
            "dp/mechanisms/permute_and_flip": "dp/mechanisms/permute_and_flip query/aggregates/threshold_search",  # noqa: E501
            "dp/sampling/exponential_powers": "dp/sampling/exponential_powers dp/mechanisms/exponential",  # noqa: E501
            "dp/mechanisms/quantile": "dp/mechanisms/quantile",
            "dp/mechanisms/running_count": "dp/confidence/approximate_sum_of_draws query/running_axis query/running_sensitivity",  # noqa: E501
            "dp/mechanisms/partition_selection": "dp/mechanisms/partition_selection dp/mechanisms/gaussian_partition_selection client/partition_selection",  # noqa: E501
            "dp/mechanisms/skellam": "dp/mechanisms/skellam dp/secure_aggregation/distributed_noise dp/accounting/poisson_subsampling",  # noqa: E501
            "dp/mechanisms/spanning_tree": "dp/mechanisms/spanning_tree",
            "dp/confidence/simultaneous": "dp/confidence/ratio_of_sums query/error_targets",
            "dp/sampling/threshold_table": "dp/sampling/threshold_table dp/sampling/geometric dp/mechanisms/gaussian",  # noqa: E501
            "dp/mechanisms/gaussian_partition_selection": "dp/mechanisms/gaussian_partition_selection client/partition_selection",  # noqa: E501
            "dp/mechanisms/top_k": "dp/mechanisms/top_k query/aggregates/threshold_search",
            "dp/mechanisms/binary_tree": "dp/mechanisms/binary_tree dp/confidence/approximate_sum_of_draws dp/mechanisms/continual_counting query/running_axis",  # noqa: E501
            "dp/confidence/weighted_sum_of_draws": "dp/confidence/ratio_of_sums dp/mechanisms/averaged_noise",  # noqa: E501
        },
    ),
    *_targets(
        PRICE,
        {
            "query/price": "query/plan query/error_targets query/aggregates/noisy_moments query/aggregates/threshold_search release/top_up client/partition_selection release/charged_events query/postprocess/formulas",  # noqa: E501
            "query/partition_selection_price": "client/partition_selection release/charged_events release/host_failures",  # noqa: E501
            "query/budget_split": "query/plan query/error_targets query/aggregates/noisy_moments",
            "query/plan": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/top_up": "release/top_up",
            "query/postprocess/linear_forms": "query/postprocess/formulas dp/confidence/ratio_of_sums query/error_targets client/formulas",  # noqa: E501
            "query/aggregates/order_statistics": "query/aggregates/threshold_search query/aggregates/sensitivity_attained client/quantiles_by_private_keys release/charged_events",  # noqa: E501
            "query/aggregates/count": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/mean": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/noisy_moments": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/covariance": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/result_ranges": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/running_count": "query/running_axis query/running_sensitivity",
            "query/aggregates/threshold_search": "query/aggregates/threshold_search query/aggregates/sensitivity_attained release/charged_events",  # noqa: E501
            "query/aggregates/sum": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/variance": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events",  # noqa: E501
            "query/aggregates/aggregate": "query/aggregates/sensitivity_attained query/error_targets query/aggregates/noisy_moments query/plan release/charged_events query/postprocess/scalar_functions_and_totals",  # noqa: E501
            "features/federated/sum_plan": "features/federated/sum_plan dp/secure_aggregation/distributed_noise",  # noqa: E501
            "features/federated/training_plan": "features/federated/training_plan features/federated/training_plan_input_layers",  # noqa: E501
            "features/streams/stream_plan": "features/streams/stream_plan dp/mechanisms/continual_counting",  # noqa: E501
            "features/pipelines/program_plan": "features/pipelines/programs features/pipelines/program_plan features/pipelines/rule_service features/pipelines/noise features/pipelines/release",  # noqa: E501
        },
    ),
    *_targets(
        ACCOUNTING,
        {
            "vault/ledger_entries": "contract/ledger_all contract/ledger_store dp/accounting/privacy_filter",  # noqa: E501
            "dp/budget": "dp/budget dp/accounting/privacy_filter",
            "dp/accounting/zcdp_conversion": "dp/accounting/zcdp_conversion dp/accounting/privacy_filter dp/accounting/against_dp_accounting",  # noqa: E501
            "dp/accounting/privacy_filter": "dp/accounting/privacy_filter",
            "dp/accounting/privacy_events": "dp/accounting/privacy_events dp/accounting/privacy_filter dp/accounting/zcdp_conversion",  # noqa: E501
            "dp/confidence/ratio_of_sums": "dp/confidence/ratio_of_sums query/postprocess/formulas",
            "dp/confidence/ratio_of_integers": "dp/confidence/ratio_of_integers dp/mechanisms/averaged_noise",  # noqa: E501
            "dp/accounting/renyi": "dp/mechanisms/skellam dp/accounting/poisson_subsampling dp/secure_aggregation/distributed_noise features/federated/training_plan",  # noqa: E501
            "dp/accounting/poisson_subsampling": "dp/accounting/poisson_subsampling",
            "dp/sensitivity": "dp/sensitivity",
            "release/ledger_guard": "release/guarded_release release/batched_release features/anonymization/hand_out_service vault/budget_windows contract/recovery",  # noqa: E501
            "release/guarantees/central_dp": "release/guarded_release features/pipelines/noise client/partition_selection features/synthetic/misfit_release features/synthetic/choice_release release/top_up release/running_count",  # noqa: E501
            "release/guarantees/secure_aggregation": "features/federated/sum_release features/federated/poisson_sampling features/federated/training/training_rounds",  # noqa: E501
            "release/noise_pool": "release/noise_pool",
        },
    ),
    *_targets(
        SUMS,
        {
            "dp/secure_aggregation/collector": "dp/secure_aggregation/message_encoding dp/secure_aggregation/round dp/secure_aggregation/malicious_parties dp/secure_aggregation/mask_neighbours dp/secure_aggregation/unmasking",  # noqa: E501
            "dp/secure_aggregation/dithered_rounding": "dp/secure_aggregation/dithered_rounding",
            "dp/secure_aggregation/message_encoding": "dp/secure_aggregation/message_encoding dp/secure_aggregation/round dp/secure_aggregation/malicious_parties dp/secure_aggregation/mask_neighbours",  # noqa: E501
            "dp/secure_aggregation/masks": "dp/secure_aggregation/round dp/secure_aggregation/unmasking dp/secure_aggregation/mask_neighbours",  # noqa: E501
            "dp/secure_aggregation/participant": "dp/secure_aggregation/round dp/secure_aggregation/malicious_parties dp/secure_aggregation/mask_neighbours dp/secure_aggregation/unmasking dp/secure_aggregation/dropped_sites",  # noqa: E501
            "dp/secure_aggregation/distributed_noise": "dp/secure_aggregation/distributed_noise features/federated/sum_plan",  # noqa: E501
            "dp/secure_aggregation/stochastic_rounding": "dp/secure_aggregation/stochastic_rounding dp/secure_aggregation/dithered_rounding",  # noqa: E501
            "dp/secure_aggregation/secret_sharing": "dp/secure_aggregation/secret_sharing dp/secure_aggregation/malicious_parties",  # noqa: E501
            "dp/secure_aggregation/round_terms": "dp/secure_aggregation/malicious_parties dp/secure_aggregation/mask_neighbours dp/secure_aggregation/unmasking dp/secure_aggregation/round",  # noqa: E501
        },
    ),
    *_targets(
        KERNEL,
        {
            "engines/kernel/contribution_bounding": "engines/kernel/contribution_bounding engines/kernel/rank_slots",  # noqa: E501
            "engines/kernel/keyed_order": "engines/kernel/contribution_bounding",
            "engines/kernel/bounded_sums": "engines/kernel/contribution_bounding engines/kernel/rank_slots",  # noqa: E501
            "engines/kernel/row_arrays": "engines/kernel/contribution_bounding engines/kernel/rank_slots engines/kernel/packed_rows",  # noqa: E501
        },
    ),
    *_targets(
        BESIDE,
        {
            "dp/anonymity/equivalence_classes": "dp/anonymity/diversity_measures dp/anonymity/recoded_table",  # noqa: E501
            "features/access/service": "features/access/secret_tokens server/review_findings",
            "engines/shared/process_hardening": "engines/shared/process_hardening engines/duckdb/worker",  # noqa: E501
        },
    ),
)
