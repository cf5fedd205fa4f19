"""Predictions against emulated clusters: calibrated on a few configurations, compared with many that were not seen.

    python -m bench.predict.testbed --plan                what would be run, without root
    python -m bench.predict.testbed --only "4 x 200mbit"  one of them, with what it is predicted from (root)
    python -m bench.predict.testbed                       all of them (root; an hour and a half)

Split: three configurations, one node count and one bucket size at three rates, are profiled and calibrate; every
other combination of nodes, rate and bucket size is predicted from the calibration of the nearest rate and then
measured. A target's rate is the calibration's own bus bandwidth times the ratio of the rates that the links are
shaped to: nothing of the target is looked at before it is predicted. Results are kept in ``data/testbed.csv``, a
line a stall.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import yaml

from bench.common import ROOT
from bench.predict import results
from bench.predict.errors import summary
from stash import load
from stash.base.records import Profile
from stash.base.words.units import parse_rate
from stash.derive.predict.draws import Draws
from stash.derive.predict.exchange import ExchangeModel
from stash.derive.predict.exchanged import ExchangeChanges
from stash.derive.predict.forecast import Forecast, Predicted, forecast
from stash.derive.predict.sources import of_profile
from stash.derive.predict.target import Target
from stash.derive.predict.timeline import MIB
from stash.derive.stalls import attribute

RESULTS = Path(__file__).parent / "data" / "testbed.csv"
RATES = ("100mbit", "200mbit", "400mbit", "800mbit", "1600mbit")
NODES = (2, 3, 4)
BUCKETS = (1, 4, 25)
"""MiB, as ``bucket_cap_mb``."""
CALIBRATING = ("100mbit", "400mbit", "1600mbit")
LAYERS = tuple((600_000 + 150_000 * (number % 4), 0.004, 0.008) for number in range(12))
"""Bytes of gradient, seconds of the forward and of the backward pass: about 10 MB and 144 ms a step."""
FITTED = ("3 x 200mbit, 4 MiB", "4 x 800mbit, 1 MiB")
"""From which the model's own spread was taken (``exchange.HELD_SPREAD``): they are not in the table of errors."""
PORT = 29_588
DRAWS = Draws()


@dataclass(frozen=True)
class Configuration:
    """One job on one emulated cluster of one device a node."""

    nodes: int
    rate: str
    bucket: int

    @property
    def name(self) -> str:
        return f"{self.nodes} x {self.rate}, {self.bucket} MiB"

    @property
    def calibrates(self) -> bool:
        return self.nodes == NODES[0] and self.bucket == BUCKETS[1] and self.rate in CALIBRATING


ALL = tuple(Configuration(*each) for each in product(NODES, RATES, BUCKETS))


def calibration_of(wanted: Configuration) -> Configuration:
    """The calibrating configuration whose rate is nearest, by ratio."""
    near = min(CALIBRATING, key=lambda rate: abs(math.log(parse_rate(rate) / parse_rate(wanted.rate))))
    return Configuration(NODES[0], near, BUCKETS[1])


# Predicting -----------------------------------------------------------------------------------------------------


def target_of(base: Target, seen: Configuration, wanted: Configuration) -> Target:
    """The calibration's cluster with more nodes, and links as much faster as they are shaped to be."""
    assert base.network is not None
    assert base.network.bytes_per_second is not None
    factor = parse_rate(wanted.rate) / parse_rate(seen.rate)
    rate = base.network.bytes_per_second.scaled(factor, "scaled", f"shaped to {wanted.rate}")
    network = base.network.model_copy(update={"bytes_per_second": rate})
    return base.model_copy(update={"network": network, "nodes": wanted.nodes, "name": wanted.name})


def predict(profile: Profile, seen: Configuration, wanted: Configuration) -> Forecast:
    """The step of ``wanted`` from a profile of ``seen``: its compute stays, its exchange is forecast."""
    breakdown, base = attribute(profile), of_profile(profile)
    target = target_of(base, seen, wanted)
    changes = ExchangeChanges(bucket_cap=None if wanted.bucket == seen.bucket else float(wanted.bucket * MIB))
    outcome = ExchangeModel(profile, breakdown, base, DRAWS).on(target, changes)
    kept = [
        Predicted(stall.name, DRAWS.around(f"measured {stall.name}", stall.time), "measured")
        for stall in breakdown.stalls
        if stall.name in ("compute", "contention")
    ]
    return forecast(target, [*kept, *outcome.parts], outcome.missing, source=wanted.name, seed=DRAWS.seed)


# Measuring ------------------------------------------------------------------------------------------------------


def measure(configuration: Configuration, folder: Path, budget: float) -> Profile:
    """A profile of the configuration on an emulated cluster; needs root."""
    from stash.lab.testbed import Testbed

    model = folder / "model.yaml"
    layers = [
        {"name": f"layer {i}", "bytes": size, "forward_seconds": forward, "backward_seconds": backward}
        for i, (size, forward, backward) in enumerate(LAYERS)
    ]
    model.write_text(yaml.safe_dump({"name": "predicted", "layers": layers}), encoding="utf-8")
    output = folder / "node-0.stash.json"
    with Testbed(configuration.nodes, 1, network=configuration.rate) as bed:
        command = partial(_command, configuration, model, folder, budget, bed.address(0))
        runs = bed.run_all(command, env={"NO_COLOR": "1", "OMP_NUM_THREADS": "1"})
        codes = [run.wait(budget + 120) for run in runs]
        if any(codes):
            raise RuntimeError(f"{configuration.name}: exit codes {codes}\n" + "\n".join(run.output for run in runs))
    return load(output)


def _command(
    configuration: Configuration, model: Path, folder: Path, budget: float, address: str, node: int
) -> list[str]:
    return [
        *(sys.executable, "-m", "stash", "profile", "--nproc-per-node", "1", "--nnodes", str(configuration.nodes)),
        *("--node-rank", str(node), "--rdzv-endpoint", f"{address}:{PORT}", "--rungs", "solo,crowd,cluster"),
        *("--budget", str(budget), "-o", str(folder / f"node-{node}.stash.json")),
        *("-m", "stash.lab.testbed.train", "--model", str(model), "--bucket-mb", str(configuration.bucket)),
    ]


def compare(wanted: Sequence[Configuration], budget: float) -> None:
    """Profile what calibrates, predict and then measure what is wanted, and keep a line of each stall."""
    calibrations: dict[Configuration, Profile] = {}
    for configuration in wanted:
        seen = calibration_of(configuration)
        with tempfile.TemporaryDirectory() as folder:
            if seen not in calibrations:
                calibrations[seen] = measure(seen, Path(folder), budget)
        predicted = predict(calibrations[seen], seen, configuration)
        with tempfile.TemporaryDirectory() as folder:
            found = attribute(measure(configuration, Path(folder), budget))
        lines = results.lines(configuration.name, predicted, found)
        results.keep(RESULTS, lines)
        for line in lines:
            print("  ".join(line), flush=True)


# Showing --------------------------------------------------------------------------------------------------------

SECTION = """## Emulated clusters

{cases} configurations, measured between {first} and {last}. *Split*: {calibrating} calibrate, one for each of three
link rates; all others are predicted, from the nearest of these rates, before they are measured. The model's own
spread comes from two more ({fitted}), which are not in the table.
"""


def rows() -> list[dict[str, str]]:
    """What was kept so far."""
    return results.rows(RESULTS)


def section() -> list[str]:
    """Of the page on validation, from the results that are kept."""
    learned = {*FITTED, *(each.name for each in ALL if each.calibrates)}
    unseen = [row for row in rows() if row["configuration"] not in learned]
    if not unseen:
        return ["## Emulated clusters", "", "Not measured yet: `python -m bench.predict.testbed` (root) does."]
    dates = sorted(row["as_of"] for row in unseen)
    cases = len({row["configuration"] for row in unseen})
    calibrating = sum(each.calibrates for each in ALL)
    head = SECTION.format(
        cases=cases, first=dates[0], last=dates[-1], calibrating=calibrating, fitted=" and ".join(FITTED)
    )
    return [head, *summary([results.prediction(row) for row in unseen if row["stall"] in ("step", "network")])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.predict.testbed", description=__doc__)
    parser.add_argument("--plan", action="store_true", help="print what would be run")
    parser.add_argument("--only", metavar="WORDS", help="configurations whose name contains this")
    parser.add_argument("--budget", type=float, default=45.0, metavar="SECONDS", help="of each profile (default 45)")
    options = parser.parse_args()
    wanted = [each for each in ALL if not each.calibrates and (options.only or "") in each.name]
    if not wanted:
        parser.error(f"no configuration is called {options.only!r}; --plan lists them")
    if options.plan:
        for each in wanted:
            print(f"{each.name:24} from {calibration_of(each).name}")
        print(f"{len(wanted)} configurations, about {len(wanted) * (options.budget + 30) / 60:.0f} minutes")
        return
    compare(wanted, options.budget)
    print(f"kept in {RESULTS.relative_to(ROOT)}; `python -m bench.predict` writes the page")


if __name__ == "__main__":
    main()
