"""Predictions against emulated clusters: a few configurations are profiled, many others predicted and then measured.

    python -m bench.predict.testbed --only "4 x 2"   those whose name contains this (root)
    python -m bench.predict.testbed                  all that have not been measured yet (root; 40 minutes)

Measured configurations are kept in ``data/testbed/measured.csv.gz``, a line a stall, and the profiles that calibrate
beside it: predictions are made from these profiles whenever the page is written, by the functions behind ``stash
whatif``, which know how many times as fast a link or a disk is shaped, and nothing else of the target.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import product
from pathlib import Path

from bench import recorded
from bench.machine import ROOT, arguments
from bench.predict.errors import Prediction, evidence
from bench.table import progress
from bench.truth.cases import Case, Layer, Rates
from bench.truth.jobs import cluster, profile
from stash.analysis.attribution import attribute
from stash.core.artefact import load, save
from stash.core.intervals import Interval
from stash.core.records.profile import Profile
from stash.core.redaction import redact_artefact
from stash.core.units import parse_rate
from stash.predict.changes import Alteration, Times
from stash.predict.draws import Array, Draws
from stash.predict.forecast import StallDraws
from stash.predict.forecasting import base_of, stall_draws
from stash.predict.passes import Base
from stash.predict.timeline import MIB

KEPT = Path(__file__).parent / "data" / "testbed"
RESULTS = KEPT / "measured.csv.gz"
FIELDS = ("configuration", "stall", "seconds", "low", "high", "as_of")
LAYERS = tuple(Layer(600_000 + 150_000 * (number % 4), 0.004, 0.008) for number in range(12))
"""About 10 MB of gradients and 144 ms a step."""
SMALL = tuple(Layer(300_000, 0.002, 0.004) for _ in range(4))
"""24 ms a step at a batch of 4, whose loader is the matter."""
PREP = 0.06
"""Seconds of a worker to make a batch of 4 where no disk limits it; an emulated loader reads meanwhile."""
FITTED = ("3 x 200mbit, 4 MiB", "4 x 800mbit, 1 MiB")
"""From which the exchange model's own spread was taken (``HELD_SPREAD``): not in the table of errors."""
WIDEST = 0.05
"""Half of a measured step's interval at most, as a part of the step: wider ones are measured again."""
MIN_SHARE = 0.05
"""Of a step: smaller stalls are judged by the step's error only."""


DRAWS = Draws()


def _unknown(case: Case, rates: Rates) -> dict[str, float]:
    raise NotImplementedError("the truth of these configurations is measured")


@dataclass(frozen=True)
class Configuration:
    """One job on one emulated cluster."""

    family: str
    name: str
    case: Case
    seen: str
    """The configuration that it is predicted from; its own name where it calibrates."""
    changes: Alteration

    @property
    def calibrates(self) -> bool:
        return self.seen == self.name


RATES = ("100mbit", "200mbit", "400mbit", "800mbit", "1600mbit")
CALIBRATING = ("100mbit", "400mbit", "1600mbit")
NODES, BUCKETS = (2, 3, 4), (1, 4, 25)


def _networks() -> Iterator[Configuration]:
    """One device a node: nodes, link rates and bucket sizes."""
    for nodes, rate, bucket in product(NODES, RATES, BUCKETS):
        near = min(
            CALIBRATING, key=lambda other: abs(math.log(parse_rate(other) / parse_rate(rate)))
        )
        name = f"{nodes} x {rate}, {bucket} MiB"
        changes = Alteration(
            nodes=None if nodes == NODES[0] else nodes,
            network=None if near == rate else Times(parse_rate(rate) / parse_rate(near)),
            bucket=None if bucket == BUCKETS[1] else float(bucket * MIB),
        )
        case = Case(name, _unknown, LAYERS, nodes=nodes, network=rate, bucket_mb=bucket)
        yield Configuration("network", name, case, f"2 x {near}, 4 MiB", changes)


def _nodes_of_two() -> Iterator[Configuration]:
    """Two devices a node, which share a link of their own: nodes and rates of the network."""
    for nodes, rate in (
        (2, "400mbit"),
        (2, "100mbit"),
        (2, "1600mbit"),
        (3, "400mbit"),
        (3, "100mbit"),
    ):
        name = f"{nodes} x 2 devices, {rate}"
        changes = Alteration(
            nodes=None if nodes == 2 else nodes,
            network=None if rate == "400mbit" else Times(parse_rate(rate) / parse_rate("400mbit")),
        )
        case = Case(
            name,
            _unknown,
            LAYERS,
            nodes=nodes,
            devices=2,
            network=rate,
            interconnect="2gbit",
            bucket_mb=4,
        )
        yield Configuration("two devices a node", name, case, "2 x 2 devices, 400mbit", changes)


def _disks() -> Iterator[Configuration]:
    """One device whose loader waits for its disk: limits, workers and batch sizes."""
    for disk, workers, batch in product(
        ("10MB/s", "20MB/s", "40MB/s", "80MB/s"), (0, 1, 2), (4, 8)
    ):
        seen = (disk, workers, batch) == ("20MB/s", 1, 4)
        if not seen and (batch == 8) == (disk in ("20MB/s", "80MB/s")) and workers != 1:
            continue  # each disk with each number of workers, and each batch with each disk: half of the product
        changes = Alteration(
            disk=None if disk == "20MB/s" else Times(parse_rate(disk) / parse_rate("20MB/s")),
            workers=None if workers == 1 else workers,
            batch=None if batch == 4 else batch,
        )
        case = Case(
            f"disk {disk}, workers {workers}, batch {batch}",
            _unknown,
            _batch_layers(batch),
            files=600,
            file_bytes=200_000,
            disk=disk,
            workers=workers,
            batch=batch,
        )
        yield Configuration("disk", case.name, case, "disk 20MB/s, workers 1, batch 4", changes)


def _preparation() -> Iterator[Configuration]:
    """One device whose loader has much to compute: workers and batch sizes."""
    for workers, batch in product((0, 1, 2, 3, 4), (4, 8)):
        changes = Alteration(
            workers=None if workers == 1 else workers, batch=None if batch == 4 else batch
        )
        case = Case(
            f"prep, workers {workers}, batch {batch}",
            _unknown,
            _batch_layers(batch),
            workers=workers,
            batch=batch,
            prep=PREP * batch / 4,
        )
        yield Configuration("prep", case.name, case, "prep, workers 1, batch 4", changes)


def _batch_layers(batch: int) -> tuple[Layer, ...]:
    return tuple(
        replace(layer, forward=layer.forward * batch / 4, backward=layer.backward * batch / 4)
        for layer in SMALL
    )


ALL = (*_networks(), *_nodes_of_two(), *_disks(), *_preparation())


def measure(configuration: Configuration, budget: float) -> Profile:
    """A profile of the configuration on an emulated cluster; needs root."""
    with tempfile.TemporaryDirectory() as folder, cluster(configuration.case) as (bed, _):
        return profile(configuration.case, Path(folder), bed, budget, 0.5)


def keep(configuration: Configuration, found: Profile) -> None:
    """Write down what was measured, in the place of what was before, and the profile itself if others are predicted
    from it."""
    KEPT.mkdir(exist_ok=True)
    if configuration.calibrates:
        save(redact_artefact(found), _file(configuration.name))
    breakdown = attribute(found)
    lines = [("step", breakdown.step), *((stall.name, stall.time) for stall in breakdown.stalls)]
    today = date.today().isoformat()
    kept = [
        row
        for name, rows in load_measured().items()
        if name != configuration.name
        for row in rows.values()
    ]
    recorded.write(
        RESULTS,
        FIELDS,
        [
            *([row[name] for name in FIELDS] for row in kept),
            *(
                [configuration.name, name, time.value, time.low, time.high, today]
                for name, time in lines
            ),
        ],
    )


def _file(name: str) -> Path:
    return KEPT / f"{name.replace(', ', '-').replace(' ', '-').replace('/', '-')}.stash.json"


def load_measured() -> dict[str, dict[str, dict[str, str]]]:
    """Rows by configuration and stall."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in recorded.rows(RESULTS):
        found.setdefault(row["configuration"], {})[row["stall"]] = row
    return found


def interval(row: dict[str, str]) -> Interval:
    """What was measured of a stall, or of the step."""
    low, high = (float(row[end]) if row[end] else None for end in ("low", "high"))
    return Interval(value=float(row["seconds"]), low=low, high=high)


def is_disturbed(rows: dict[str, dict[str, str]]) -> bool:
    """Whether other work on the machine left the step too uncertain to judge a prediction by."""
    step = interval(rows["step"])
    return step.half_width is None or step.half_width > WIDEST * step.value


@lru_cache
def _base(seen: str) -> Base:
    return base_of(load(_file(seen)))


def predict_stalls(configuration: Configuration) -> StallDraws:
    """The stalls of the configuration as its calibration's profile predicts them."""
    return stall_draws(_base(configuration.seen), configuration.changes)


def predictions() -> list[tuple[Configuration, Prediction]]:
    """Of steps, and of stalls that are no small part of one; of all that is measured and neither calibrates nor was
    fitted to."""
    rows, found = load_measured(), []
    for configuration in ALL:
        if configuration.calibrates or configuration.name in FITTED:
            continue
        if configuration.name not in rows or configuration.seen not in rows:
            continue
        drawn, seen = predict_stalls(configuration), rows[configuration.name]
        step = interval(seen["step"])
        found.append((configuration, _judge_step("the step", configuration, step, drawn.step)))
        for part in drawn.parts:
            time = interval(seen[part.name]) if part.name in seen else None
            if time is not None and part.name != "compute" and time.value > MIN_SHARE * step.value:
                found.append(
                    (configuration, _judge_step(part.name, configuration, time, part.seconds))
                )
    return found


def _judge_step(
    source: str, configuration: Configuration, time: Interval, drawn: Array
) -> Prediction:
    """Its draws hold the measurement's own spread, too: what is judged is whether the two agree."""
    spread = DRAWS.draw_mean(f"measured again {source}", time) - time.value
    return Prediction(source, configuration.name, time.value, drawn + spread)


def section() -> str:
    found, rows, title = predictions(), load_measured(), "Emulated clusters"
    if not found:
        return f"## {title}\n\nNot measured yet: `python -m bench.predict.testbed` (root) does."
    names = {configuration.name for configuration, _ in found}
    dates = sorted(rows[name]["step"]["as_of"] for name in names)
    split = (
        f"{len(names)} configurations that were predicted by `stash whatif` from "
        f"{len({configuration.seen for configuration, _ in found})} profiles of others, measured between {dates[0]} "
        f"and {dates[-1]}. *Split*: what is profiled calibrates, and the exchange model's spread comes from "
        f"{' and '.join(FITTED)}; none of these is in the table. Stalls are judged where they are at least "
        f"{MIN_SHARE:.0%} of the step. *In the interval*: the forecast's and the measurement's own, together."
    )
    steps = [(configuration, each) for configuration, each in found if each.source == "the step"]
    families = [
        replace(each, source=f"the step, {configuration.family}") for configuration, each in steps
    ]
    stalls = [each for _, each in found if each.source != "the step"]
    whole = [each for _, each in steps]
    return evidence(title, split, [*whole, *families, *stalls], whole)


def main() -> None:
    options = arguments(
        __doc__,
        only=("", "configurations whose name contains this"),
        budget=(25.0, "seconds of each profile"),
    )
    done = load_measured()
    wanted = [each for each in ALL if options.only in each.name]
    if not wanted:
        sys.exit(f"no configuration is called {options.only!r}")
    for configuration in wanted:
        if configuration.name not in done or is_disturbed(done[configuration.name]):
            found = measure(configuration, options.budget)
            keep(configuration, found)
            progress(configuration.name, f"{attribute(found).step_seconds:.4f} s")
    print(f"kept in {RESULTS.relative_to(ROOT)}; `python -m bench.predict` writes the page")


if __name__ == "__main__":
    main()
