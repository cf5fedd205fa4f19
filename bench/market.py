"""What re-choosing machines saves: the study of 2020 to the letter, then corrected; policies beside hindsight; speed.

    python -m bench.market study                              # the ladder, and each assumption taken back
    python -m bench.market moves                              # daily against looking ahead over what a move costs
    python -m bench.market traces --spot-traces FOLDER        # every trace of skypilot-org/spot-traces, by path
    python -m bench.market revocations --logs FOLDER          # pings of training_on_a_dime/logs, by path
    python -m bench.market speed [--notebook FOLDER]          # against the goals, and the study's own code

Prices and throughputs are in ``tests/recorded/market`` (its README says whose). The traces are not shipped.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.dispa import CORRECTIONS, POLICIES, StudyRate, day_grid, ladder
from bench.dispa_logs import import_dispa
from bench.machine import ROOT
from bench.table import report, table
from stash.market.backtest import Backtest, replay, summaries
from stash.market.decisions import job_market
from stash.market.fees import FREE, Fees, published_fees
from stash.market.foresight import foresee
from stash.market.jobs import InstanceRate, MarketJob
from stash.market.market_importers import import_skypilot
from stash.market.market_table import read_market
from stash.market.market_trace import HOUR, MarketOffer, MarketTrace, chosen, trace_of

DATA = ROOT / "tests/recorded/market"
DAY = 24 * HOUR
GPUS = {
    "p2.xlarge": ("K80", 1), "p2.8xlarge": ("K80", 8), "p2.16xlarge": ("K80", 16),
    "p3.2xlarge": ("V100", 1), "p3.8xlarge": ("V100", 4), "p3.16xlarge": ("V100", 8),
    "Standard_NC6": ("K80", 1), "Standard_NC12": ("K80", 2), "Standard_NC24": ("K80", 4),
    "Standard_NC6s_v2": ("P100", 1), "Standard_NC12s_v2": ("P100", 2), "Standard_NC24s_v2": ("P100", 4),
    "Standard_NC6s_v3": ("V100", 1), "Standard_NC12s_v3": ("V100", 2), "Standard_NC24s_v3": ("V100", 4),
}  # fmt: skip
"""Of the study: one Azure size for each GPU and count."""
MODELS = {
    "A3C": "A3C", "CycleGAN": "CycleGAN", "LM 80": "LM (batch size 80)",
    "Recomm. 8192": "Recommendation (batch size 8192)", "ResNet-50 128": "ResNet-50 (batch size 128)",
    "Transformer 256": "Transformer (batch size 256)",
}  # fmt: skip
REFERENCE, V100_DAYS = "p3.2xlarge", 4.0
SIMPLE = ("stay", "gpu-type", "packed", "multi-cloud", "daily")


def throughputs() -> dict[str, dict[str, float]]:
    """Iterations a second of one GPU, by model."""
    found: dict[str, dict[str, float]] = {}
    with (DATA / "dispa_throughput.csv").open() as file:
        for row in csv.DictReader(file):
            found.setdefault(row["model"], {})[row["gpu"]] = float(row["iterations_per_s"])
    return found


def scalings() -> dict[tuple[str, str, int], float]:
    """Of (model, GPU, count): throughput of so many GPUs of one node over that of one, as Gavel measured it."""
    found: dict[tuple[str, str, int], float] = {}
    with (DATA / "gavel_scaling.csv").open() as file:
        for row in csv.DictReader(file):
            found[row["model"], row["gpu"], int(row["gpus"])] = float(row["times_one"])
    return found


def study_rates(model: str) -> dict[str, StudyRate]:
    """Every instance of the study, with what all of its GPUs do where somebody measured that."""
    one, many = throughputs()[model], scalings()
    return {
        name: StudyRate(count, one[gpu], one[gpu] * many[model, gpu, count] if (model, gpu, count) in many else None)
        for name, (gpu, count) in GPUS.items()
    }


def job_of(model: str, days: float = V100_DAYS, **settings: float | None) -> MarketJob:
    """The study's job with measured rates; what nobody measured has none."""
    rates = {
        name: InstanceRate(samples_per_second=rate.of_one if rate.gpus == 1 else rate.of_all or 0.0, gpus=rate.gpus)
        for name, rate in study_rates(model).items()
        if rate.gpus == 1 or rate.of_all is not None
    }
    samples = days * DAY * rates[REFERENCE].samples_per_second
    return MarketJob(name=model, samples=samples, rates=rates, data_in="us-east-1", **settings)  # type: ignore[arg-type]


def market() -> MarketTrace:
    return read_market(DATA / "dispa.market.csv.gz")


# The study, and its assumptions taken back


def study() -> Iterator[str]:
    grid = day_grid(market())
    for name, assumed in CORRECTIONS:
        found = {
            short: ladder(grid, study_rates(full), REFERENCE, V100_DAYS, assumed) for short, full in MODELS.items()
        }
        starts = len(next(iter(found.values())).starts)
        rows = [[each, *(f"{one.reduction(each):.2f}" for one in found.values())] for each in POLICIES[1:]]
        yield f"{name} ({starts} starts)\n\n" + table(["mean cost of stay / mean cost", *MODELS], rows)
    steps = (
        ("real times of change, everything to the second", {"boot": 0.0, "checkpoint_every": None}, FREE),
        ("moves: 3 min of boot, 10 GB of data and 1 GB of checkpoints at 250 MB/s, egress, minutes billed",
         {"boot": 180.0, "data": 10e9, "checkpoint": 1e9, "checkpoint_every": 1800.0}, published_fees()),
        ("the same with 100 GB of data",
         {"boot": 180.0, "data": 100e9, "checkpoint": 1e9, "checkpoint_every": 1800.0}, published_fees()),
    )  # fmt: skip
    trace = market()
    for name, settings, fees in steps:
        found_of = {
            short: replay(trace, job_of(full, **settings), SIMPLE, "daily", 10 * DAY,
                          home=REFERENCE, fees=fees, hindsight=False)
            for short, full in MODELS.items()
        }  # fmt: skip
        starts = len(next(iter(found_of.values())).starts)
        yield f"{name} ({starts} starts)\n\n" + _reductions(found_of)


def _reductions(found: dict[str, Backtest]) -> str:
    lines = {short: {line.name: line for line in summaries(one)} for short, one in found.items()}
    names = [name for name in next(iter(lines.values())) if not name.startswith("stay")]
    stays = {
        short: next(line.mean for name, line in one.items() if name.startswith("stay"))
        for short, one in lines.items()
    }
    rows = [[name, *(f"{stays[short] / one[name].mean:.2f}" for short, one in lines.items())] for name in names]
    return table(["mean cost of stay / mean cost", *lines], rows)


def moves() -> Iterator[str]:
    """Daily against looking ahead, with more and more data to bring along."""
    trace = market()
    rules = ("multi-cloud", "daily", "daily:every=change", "look-ahead:24h")
    for short in ("A3C", "ResNet-50 128", "Transformer 256"):
        rows = []
        for gigabytes in (0, 1, 10, 50, 200):
            job = job_of(MODELS[short], boot=180.0, data=gigabytes * 1e9, checkpoint=1e9, checkpoint_every=1800.0)
            found = replay(trace, job, ("stay", *rules), "daily", 10 * DAY, home=REFERENCE, most=12)
            lines = {line.name: line for line in summaries(found)}
            rows.append([
                f"{gigabytes} GB", f"{lines[f'stay:{REFERENCE}'].mean:.2f}",
                *(f"{lines[each].mean:.2f} ({lines[each].moves:.1f})" for each in rules),
                f"{np.mean([each.bound or np.nan for each in found.foreseen]):.2f}",
            ])  # fmt: skip
        yield f"{short}: mean dollars (moves)\n\n" + table(["data", "stay", *rules, "no less than"], rows)


# Availability


def traces(folder: Path, inverted: bool, free_hour: bool) -> Iterator[str]:
    """Policies with a deadline on every trace: 20 h of work to be done in 30 h."""
    fees = published_fees()
    if not free_hour:
        fees = Fees(
            {cloud: each.model_copy(update={"revoked_free_seconds": None}) for cloud, each in fees.by_cloud.items()}
        )
    prices = {"p3.2xlarge": 0.918, "p2.xlarge": 0.27, "p2.8xlarge": 2.16, "p3.16xlarge": 7.344, "c3-highcpu-88": 1.0}
    fixed = {"p3.2xlarge": 3.06, "p2.xlarge": 0.9, "p2.8xlarge": 7.2, "p3.16xlarge": 24.48, "c3-highcpu-88": 3.79,
             "r5.16xlarge": 4.032}  # fmt: skip
    rules = ("spot-wait", "uniform-progress")
    rows, every = [], {name: [] for name in rules}  # type: dict[str, list[float]]
    late, avoidable, gaps, shares = dict.fromkeys(rules, 0), dict.fromkeys(rules, 0), [], []
    for file in sorted(folder.rglob("*.json")):
        trace = import_skypilot([file], inverted, prices, fixed).trace
        instance = next(each.instance for each in trace.offers if each.kind == "spot")
        machines = next((int(part.partition("-")[0]) for part in file.parts if part.endswith("-node")), 1)
        job = MarketJob(
            name=file.stem, samples=20 * HOUR, rates={instance: InstanceRate(samples_per_second=1.0)}, boot=180.0,
            checkpoint=3e9, data=0.0, fetch=250e6, save=12.0, checkpoint_every=1800.0, machines=machines,
        )  # fmt: skip
        found = replay(trace, job, rules, "6h", 30 * HOUR, most=40, fees=fees)
        lines = {line.name: line for line in summaries(found)}
        for name in rules:
            every[name] += found.regrets(name).tolist()
            late[name] += lines[name].late
            avoidable[name] += lines[name].avoidable
        gaps += [each.gap for each in found.foreseen if each.gap is not None]
        spot = next(number for number, each in enumerate(trace.offers) if each.kind == "spot")
        shares.append(_share(trace, spot, machines))
        rows.append([
            f"{file.parts[-2]}/{file.stem}", len(found.starts), f"{shares[-1]:.0%}",
            *(_regret(found.regrets(name), lines[name].avoidable) for name in rules),
        ])  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    yield "Mean cost above hindsight's bound, and runs late though hindsight was not\n\n" + table(
        ["trace", "starts", "there", *rules], rows
    )
    yield table(
        ["policy", "mean above hindsight", "median", "90th percentile", "late", "late though hindsight was not"],
        [[name, f"{np.mean(each):.1%}", f"{np.median(each):.1%}", f"{np.percentile(each, 90):.1%}", late[name],
          avoidable[name]] for name, each in every.items()],
    )  # fmt: skip
    yield (
        f"{len(rows)} traces; hindsight's bound and course are {np.mean(gaps):.2%} apart in the mean, "
        f"{np.percentile(gaps, 95):.1%} at the 95th percentile."
    )


def _regret(regrets: np.ndarray, late: int) -> str:  # type: ignore[type-arg]
    parts = [f"{regrets.mean():.0%}"] if len(regrets) else []
    return ", ".join([*parts, *([f"{late} late"] if late else [])])


def _share(trace: MarketTrace, offer: int, machines: int) -> float:
    rows = slice(trace.first[offer] + 1, trace.first[offer + 1])
    lasts = np.minimum(trace.ends[rows], trace.end) - trace.at[rows]
    seen = ~np.isnan(trace.available[rows])
    return float((lasts[seen] * (trace.available[rows][seen] >= machines)).sum() / lasts[seen].sum())


def revocations(logs: Path) -> Iterator[str]:
    """Two days of March 2020 in which somebody kept machines running and wrote down when they went."""
    trace = chosen(import_dispa(logs).trace, lambda offer: offer.cloud == "aws")
    watched = [number for number in range(len(trace.offers)) if not np.isnan(
        trace.available[trace.first[number] : trace.first[number + 1]]).all()]  # fmt: skip
    trace = trace.of(watched)
    begin = min(int(trace.at[~np.isnan(trace.available)].min()), trace.end)
    end = max(int(each) for each in trace.ends[~np.isnan(trace.available)] if each < trace.end + 1)
    starts = np.arange(begin + HOUR, end - 12 * HOUR, HOUR).tolist()
    rows = []
    for short, full in MODELS.items():
        line = []
        for known in (replace(trace, available=np.full(len(trace.at), np.nan)), trace):
            job = job_of(full, days=0.25, boot=180.0, checkpoint=1e9, checkpoint_every=1800.0)
            rules = (*SIMPLE[:3], "daily:every=change")
            found = replay(known, job, rules, starts, None, home=REFERENCE, hindsight=False)
            lines = summaries(found)
            line += [f"{lines[0].mean / each.mean:.2f} ({each.revocations:.2f})" for each in lines[1:]]
        rows.append([short, len(found.starts), *line])
    names = ("gpu-type", "packed", "at every change")
    return iter([
        "A quarter of a V100-day on the eight offers that were watched: cost reduction (revocations)\n\n"
        + table(["job", "starts", *(f"{each}, {how}" for how in ("calm", "watched") for each in names)], rows)
    ])  # fmt: skip


# Speed


def speed(notebook: Path | None) -> Iterator[str]:
    rows = []
    trace = market()
    began = time.perf_counter()
    grid = day_grid(trace)
    for full in MODELS.values():
        ladder(grid, study_rates(full), REFERENCE, V100_DAYS, CORRECTIONS[0][1])
    ours = time.perf_counter() - began
    rows.append(["ladder: 6 models x 5 policies x 30 starts", f"{ours:.3f} s", "0.5 s"])
    if notebook is not None:
        theirs = notebook_seconds(notebook)
        rows.append(
            ["the study's own code for the same", f"{theirs:.1f} s", f"{theirs / ours:.0f} times slower (10)"]
        )
    job = job_of(MODELS["ResNet-50 128"], boot=180.0, data=10e9, checkpoint=1e9, checkpoint_every=1800.0)
    begins = np.linspace(1582502400, 1583884800, 1000).tolist()
    rules = (*SIMPLE, "daily:every=6h", "daily:every=change", "look-ahead:6h", "look-ahead:24h")
    began = time.process_time()
    found = replay(trace, job, rules, begins, 10 * DAY, home=REFERENCE, hindsight=False)
    rows.append(
        [f"{len(found.starts):,} starts x {len(rules)} policies", f"{time.process_time() - began:.1f} s", "60 s"]
    )
    rows.append(["hindsight of 300 intervals x 3 offers", *_hindsight_seconds()])
    rows.append(["10 M price changes of 500 offers loaded", *_load_seconds()])
    yield table(["what", "took", "goal"], rows)


def _hindsight_seconds() -> tuple[str, str]:
    random = np.random.default_rng(3)
    offers = [MarketOffer("aws", f"region-{o}", "", "p3.2xlarge", "spot") for o in range(3)]
    at = np.concatenate([np.sort(random.choice(np.arange(1, 30 * 24 * 60), 100, replace=False)) * 60 for _ in offers])
    at = at + 10**9 - at.min()
    price = random.lognormal(0.0, 0.4, len(at))
    offer = np.repeat(np.arange(3), 100)
    trace = trace_of(offers, offer, at.astype(np.int64), price, np.full(len(at), np.nan), 90 * DAY)
    job = MarketJob(samples=150 * HOUR, rates={"p3.2xlarge": InstanceRate(samples_per_second=1.0)}, checkpoint=1e9)
    found = job_market(job, trace, FREE)
    start = float(np.max([trace.at[trace.first[o] + 1] for o in range(3)]))
    began = time.perf_counter()
    seen = foresee(found, start, start + 29 * DAY)
    return f"{time.perf_counter() - began:.1f} s (gap {seen.gap or 0:.2%})", "10 s"


def _load_seconds(rows: int = 10_000_000, offers: int = 500) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.market.csv"
        names = [f"aws,us-east-{o % 9},us-east-{o % 9}{'abcdef'[o % 6]},type{o}.xlarge,spot" for o in range(offers)]
        with path.open("w") as file:
            file.write("# stash market 1\nat,cloud,region,zone,instance,kind,usd_per_hour,available\n")
            stamps = np.datetime_as_string(
                np.arange(rows // 10) * np.timedelta64(31, "s") + np.datetime64("2020-01-01T00:00:00")
            )
            for block in range(0, rows, 100_000):
                file.write("".join(
                    f"{stamps[each // 10]}Z,{names[each % offers]},{0.9 + each % 97 / 100:.4f},\n"
                    for each in range(block, block + 100_000)
                ))  # fmt: skip
        del stamps, names
        gc.collect()
        code = (
            "import sys, time, resource; from stash.market.market_table import read_market; "
            "began = time.perf_counter(), time.process_time(); trace = read_market(sys.argv[1]); "
            "print(time.perf_counter() - began[0], time.process_time() - began[1], len(trace.at), "
            "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        import subprocess

        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        seconds, busy, count, kilobytes = done.stdout.split()
    size = f"{int(kilobytes) / 2**20:.1f} GB, {int(count):,} pieces"
    return f"{float(seconds):.1f} s ({float(busy):.1f} s of processor time), {size}", "15 s and 2 GB"


def notebook_seconds(checkout: Path) -> float:
    """What the notebook's own functions take for the same costs, plots left out."""
    cells = json.loads((checkout / "notebooks/single_job_cost_analysis.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code = next(each for each in sources if "def get_price" in each)
    code = code[: code.index("def plot_prices")]
    scope: dict[str, object] = {}
    sys.path.insert(0, str(checkout / "notebooks"))
    import os

    here = Path.cwd()
    os.chdir(checkout / "notebooks")
    try:
        setup = (
            "import utils, json\nthroughputs = json.load(open('oracle_throughputs.json'))\n"
            "isolated_throughputs = {w: {m: x['null'] for m, x in all.items()} for w, all in throughputs.items()}\n"
        )
        exec(setup + code, scope)
        began = time.perf_counter()
        run = (
            "aws = utils.read_aws_prices('../logs/aws/cost/us-east-1', summary=False)\n"
            "azure = utils.read_azure_prices('../logs/azure/cost')\n"
            "days = sorted({x['Timestamp'] for x in aws['p3.2xlarge']})[-35:-5]\n"
            "costs = {(m, s): [get_price(s, 4, aws, None, azure, m, d) for d in days]\n"
            "         for m in MODELS for s in STRATEGIES}\n"
        )
        scope["MODELS"] = list(MODELS.values())
        scope["STRATEGIES"] = ["baseline", "gpu_type", "packed", "multi_cloud", "preemption"]
        exec(run, scope)
        return time.perf_counter() - began
    finally:
        os.chdir(here)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("study", "moves", "traces", "revocations", "speed"))
    parser.add_argument("--spot-traces", type=Path)
    parser.add_argument("--inverted", action="store_true")
    parser.add_argument(
        "--no-free-hour", action="store_true", help="bill spot machines that are revoked in their first hour"
    )
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--notebook", type=Path, help="a checkout of training_on_a_dime")
    given = parser.parse_args(arguments)
    if given.what == "traces":
        if given.spot_traces is None:
            parser.error("name a checkout of skypilot-org/spot-traces: --spot-traces FOLDER")
        parts = traces(given.spot_traces, given.inverted, not given.no_free_hour)
    elif given.what == "revocations":
        if given.logs is None:
            parser.error("name the folder logs of training_on_a_dime: --logs FOLDER")
        parts = revocations(given.logs)
    else:
        parts = {"study": study, "moves": moves}[given.what]() if given.what != "speed" else speed(given.notebook)
    report(*parts)


if __name__ == "__main__":
    main()
