"""The guarded door: the only way a number leaves."""

from sfumato.door.accounts import (
    cap_json,
    data_set_account,
    exceeded,
    group_account,
    left_json,
    left_to_pay,
    people_account,
    smallest_next,
    spent_json,
    user_account,
)
from sfumato.door.airlock import (
    AirlockDoor,
    Draft,
    check_airlock,
    check_releasable,
    draft_of,
    earlier_of,
    edited,
    fetched,
    has_left,
    release_files,
    reviewers_view,
    run_for_review,
)
from sfumato.door.averaging import (
    AverageOrder,
    average_part,
    averaged_answer,
    can_average,
    price_of_average,
)
from sfumato.door.ballots import (
    LOCAL,
    BallotCharge,
    charge_ballot,
    open_respondents,
    respondent_account,
)
from sfumato.door.choose import choose
from sfumato.door.diary import answer_version, not_dp_json
from sfumato.door.ledger import NOT_DP, Ledger
from sfumato.door.locks.crowd import OWNER_ONLY, beside_dp, hand_out, look, owners_report
from sfumato.door.looking import losses
from sfumato.door.misfit import misfit
from sfumato.door.pipeline import PipelineDoor, RunOrder, no_sandbox, run_pipeline
from sfumato.door.plans import Plans
from sfumato.door.pool import NoisePool
from sfumato.door.reading import read_rows
from sfumato.door.release import (
    Asker,
    Begun,
    Door,
    Order,
    Release,
    accounts_paying,
    answer_all,
    begin_all,
    end_all,
    is_free,
    release,
)
from sfumato.door.second_person import SecondPerson
from sfumato.door.secure_sum import (
    SumDoor,
    SumOrder,
    can_pay,
    price_of,
    sum_part,
    summed_answer,
)
from sfumato.door.stream import StreamDoor, close_periods, find_stream, open_stream
from sfumato.door.stream_shown import stream_answer
from sfumato.door.top_up import priced_for, top_up_json
from sfumato.door.training import KIND as TRAINING
from sfumato.door.training import (
    ROUND,
    TrainDoor,
    TrainOrder,
    can_train,
    price_of_training,
    training_part,
)

__all__ = [
    "LOCAL",
    "NOT_DP",
    "OWNER_ONLY",
    "ROUND",
    "TRAINING",
    "AirlockDoor",
    "Asker",
    "AverageOrder",
    "BallotCharge",
    "Begun",
    "Door",
    "Draft",
    "Ledger",
    "NoisePool",
    "Order",
    "PipelineDoor",
    "Plans",
    "Release",
    "RunOrder",
    "SecondPerson",
    "StreamDoor",
    "SumDoor",
    "SumOrder",
    "TrainDoor",
    "TrainOrder",
    "accounts_paying",
    "answer_all",
    "answer_version",
    "average_part",
    "averaged_answer",
    "begin_all",
    "beside_dp",
    "can_average",
    "can_pay",
    "can_train",
    "cap_json",
    "charge_ballot",
    "check_airlock",
    "check_releasable",
    "choose",
    "close_periods",
    "data_set_account",
    "draft_of",
    "earlier_of",
    "edited",
    "end_all",
    "exceeded",
    "fetched",
    "find_stream",
    "group_account",
    "hand_out",
    "has_left",
    "is_free",
    "left_json",
    "left_to_pay",
    "look",
    "losses",
    "misfit",
    "no_sandbox",
    "not_dp_json",
    "open_respondents",
    "open_stream",
    "owners_report",
    "people_account",
    "price_of",
    "price_of_average",
    "price_of_training",
    "priced_for",
    "read_rows",
    "release",
    "release_files",
    "respondent_account",
    "reviewers_view",
    "run_for_review",
    "run_pipeline",
    "smallest_next",
    "spent_json",
    "stream_answer",
    "sum_part",
    "summed_answer",
    "top_up_json",
    "training_part",
    "user_account",
]
