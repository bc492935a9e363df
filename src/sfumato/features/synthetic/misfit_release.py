"""Release a twin's error: plan, price, charge, read, add noise, record.

Only a few noisy sums of distances are released, and no count. The noise is drawn before the charge.
The result is stored under the user's operation, so a repetition is free.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.features.synthetic.choice_release import charge_for, looked, of_format
from sfumato.features.synthetic.misfit_plan import TwinErrorPlan
from sfumato.release.charged_reads import RowReader
from sfumato.release.guarantees.central_dp import noisy_misfits
from sfumato.release.release_order import Order, ReleaseContext

FORMAT: Final = "misfit/1"
MECHANISM: Final = "discrete laplace"


def misfit(door: ReleaseContext, order: Order, misfits: TwinErrorPlan) -> tuple[int, ...]:
    """Charge the measurement of a twin's error, read the rows, and return noisy distances.

    The distances are integers, still scaled. A repetition returns the stored ones.
    """
    noise = [one.noise.as_json() for one in misfits.numbers]
    drawn = [door.pool.take(one.noise, 1) for one in misfits.numbers]
    charge = charge_for(door, order, misfits, ("misfit", MECHANISM, noise))

    def look(reader: RowReader) -> Json:
        sealed = [
            [
                reader.read(partial(door.engine.measure, order.table, plan.measure))
                for plan in one.plans
            ]
            for one in misfits.numbers
        ]
        return {"format": FORMAT, "numbers": list(noisy_misfits(sealed, misfits, drawn))}

    stored = looked(door, order, charge, look)
    return tuple(int(number) for number in of_format(stored, FORMAT)["numbers"])
