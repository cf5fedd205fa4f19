"""spotDNN's equation (3) fitted to replays, and the paper's Table I: what the product does not ask any more.

    loss = (γ₂ · bw + γ₃) · √((R + γ₄) · N) / (j + γ₁) + γ₅                          (3)

*Printed* is that; *shipped* is without R, as √N, as the published coefficients fit it. The table is the fleets of the
paper's exhaustive search over the published pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from bench.machine import arguments
from bench.table import show
from stash.spot.fleet_costs import FleetWish
from stash.spot.fleet_records import LossCurve
from stash.spot.model.loss_curve import residual_weights
from stash.spot.provision import provision
from stash.spot.run_records import LossReplay
from stash.spot.spot_files import read_pool

POOL = Path(__file__).parent / "data" / "spotdnn.pool.yaml"
ROWS = (
    (0.9, 1900, {"p3.2xlarge": 2, "g3.8xlarge": 2}, 1.670),
    (0.8, 2400, {"p3.2xlarge": 2, "g3.8xlarge": 4}, 2.974),
    (0.7, 3700, {"p3.2xlarge": 2, "g4dn.4xlarge": 1, "g3.8xlarge": 3}, 4.363),
)
"""Loss, seconds, and the paper's exhaustive row: workers and dollars."""


def fit_equation(replays: Sequence[LossReplay], with_r: bool) -> LossCurve:
    """(3), printed or shipped, by least squares of losses that count by the updates they are worth."""
    longest = float(max(replay.updates[-1] for replay in replays))
    batch = max(replay.mean_batch for replay in replays)
    losses = np.concatenate([np.array(each.losses) for each in replays])
    updates = np.concatenate([np.array(each.updates, dtype=float) / longest for each in replays])
    weights = np.concatenate([residual_weights(each) for each in replays])
    lengths = [len(each.updates) for each in replays]
    batches = np.repeat([each.mean_batch / batch for each in replays], lengths)
    imbalance = np.repeat([each.imbalance for each in replays], lengths)
    workers = np.repeat([float(len(each.workers)) for each in replays], lengths)
    low, high = float(losses.min()), float(losses.max())

    def residuals(given: np.ndarray) -> np.ndarray:
        one, two, three, five = given[:4]
        spread = (imbalance + given[4]) * workers if with_r else workers
        predicted = (two * batches + three) * np.sqrt(spread) / (updates + one) + five
        off: np.ndarray = (predicted - losses) * weights
        return off

    bound = 1e3 * max(abs(high), abs(low), 1e-9)
    start = [0.1, 0.0, 0.1 * high, low / 2 if low > 0 else low, 1.0]
    least = [1e-9, -bound, -bound, -bound, 1e-6]
    most = [10.0, bound, bound, bound, 1e3]
    free = 5 if with_r else 4
    found = least_squares(residuals, start[:free], bounds=(least[:free], most[:free]), x_scale="jac", max_nfev=200)
    one, two, three, five = (float(value) for value in found.x[:4])
    four = float(found.x[4]) if with_r else None
    return LossCurve(
        gamma1=one * longest, gamma2=two * longest / batch, gamma3=three * longest, gamma4=four, gamma5=five
    )


def table_one() -> Iterator[list[object]]:
    """A row for each wish: the paper's fleet and dollars beside those that are planned."""
    for loss, seconds, workers, dollars in ROWS:
        chosen = provision(FleetWish(read_pool(POOL), loss, seconds)).chosen
        assert chosen is not None
        same = "yes" if chosen.workers == workers else "no"
        yield [
            loss,
            f"{seconds} s",
            _fleet(workers),
            f"${dollars:.3f}",
            _fleet(chosen.workers),
            f"${chosen.dollars:.3f}",
            same,
        ]


def _fleet(workers: dict[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in workers.items())


if __name__ == "__main__":
    arguments(__doc__)
    show(("loss", "deadline", "Table I, exhaustive", "its dollars", "planned", "dollars", "same fleet"), table_one())
