"""What a card says of a BIDS folder: which files each person's folder holds, by pattern."""

from __future__ import annotations

import re
from typing import Final

from sfumato.core.card_fields import as_table, as_texts, bad_card

PERSON: Final = "participant_id"  # the column of participants.tsv that names the person
SUBJECT: Final = "{sub}"  # in a pattern, the name of the person's folder
MOST: Final = 50
_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.+-]*/)*\{sub\}_[A-Za-z0-9_.+-]+")


def read_bids(shape: object, unit: str) -> tuple[str, ...]:
    """Return the patterns of the files of a person's folder, or refuse.

    `anat/{sub}_T1w.nii.gz` is `sub-01/anat/sub-01_T1w.nii.gz` for the person sub-01.
    """
    body = as_table(shape, "bids", {"files"})
    files = as_texts(body.get("files", []), "bids.files")
    if unit != PERSON:
        raise bad_card(f"a BIDS folder tells people apart by {PERSON}, so that is the unit")
    if len(files) > MOST or len(set(files)) < len(files):
        raise bad_card(f"bids.files are at most {MOST}, each once")
    for file in files:
        if not _PATTERN.fullmatch(file) or len(file) > 200 or ".." in file:
            raise bad_card(f"{file[:40]!r} is no pattern like anat/{SUBJECT}_T1w.nii.gz")
    return files
