"""``stash market``: import, record and show markets; backtest policies on them; say what to do now.

Parses, calls and prints. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from stash.api import (
    OLD_PRICE_DAYS,
    ON_PREMISE,
    RECENT_DAYS,
    PlanOptions,
    TrainedJob,
    attribute,
    find_profile,
    forecast_base,
    load_catalog,
    print_answer,
    tariffs,
    training_work,
)
from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.formatting import join_names
from stash.core.output_files import output_file, write_output
from stash.core.printable import print_note, print_written, printable_line
from stash.core.records.profile import Profile
from stash.core.units import format_count
from stash.market import advising
from stash.market.backtest import replay
from stash.market.job_market import job_market
from stash.market.jobs import MarketJob, job_of_profile, read_job
from stash.market.market_importers import (
    LATELY_DAYS,
    current_prices,
    import_skypilot,
    refuse_absurd,
)
from stash.market.market_table import market_bytes, read_market
from stash.market.market_trace import MarketTrace, merge_traces
from stash.market.page import (
    advice_document,
    advice_page,
    backtest_document,
    backtest_page,
    market_document,
    market_page,
)
from stash.market.policies import DEFAULT
from stash.ui.commands import App
from stash.ui.options import Options, argument, json_flag, option

_JOB = "The job"
_MAY = "Machines to consider"
_GOAL = "Goal"


def _parse_price(text: str) -> tuple[str, float]:
    name, equals, price = text.partition("=")
    if not equals or not name.strip():
        raise UnitError("it is a type and dollars an hour, like p3.2xlarge=0.918")
    return name.strip(), parsers.price(price if "/" in price else f"{price.strip()}/h")


@dataclass(frozen=True, kw_only=True)
class MarketImportOptions(Options):
    """One call of ``stash market import``."""

    kind: Literal["skypilot"] = argument("KIND", "skypilot.", parsers.one_of(("skypilot",)))
    paths: tuple[Path, ...] = argument("PATH...", "Files or folders.", Path, many=True)
    output: Path | None = option(
        "FILE",
        "Write the market to this file: .market.csv or .market.csv.gz.",
        Path,
        "--output",
        "-o",
    )
    spot_price: tuple[tuple[str, float], ...] = option(
        "TYPE=DOLLARS",
        "Set an hour's price, for traces without prices; repeatable.",
        _parse_price,
        many=True,
    )
    on_demand_price: tuple[tuple[str, float], ...] = option(
        "TYPE=DOLLARS",
        "Add an on-demand offer in each region; repeatable.",
        _parse_price,
        many=True,
    )


@dataclass(frozen=True, kw_only=True)
class RecordOptions(Options):
    """One call of ``stash market record``."""

    market: Path = argument("MARKET", "The market file; it is created if missing.", Path)


@dataclass(frozen=True, kw_only=True)
class ShowMarketOptions(Options):
    """One call of ``stash market show``."""

    markets: tuple[Path, ...] = argument(
        "MARKET...", "Market files; several are merged.", Path, many=True
    )
    json: bool = json_flag()


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(Options):
    """What backtests and advice share."""

    job: Path = option(
        "FILE", "The job: a profile, or a job.yaml (docs/market.md).", Path, default=..., panel=_JOB
    )
    epochs: float | None = option(
        "N", "Train for N passes over the data set.", parsers.count, panel=_JOB
    )
    samples: float | None = option(
        "N", "Train on N samples, like 50M; with --epochs, N per epoch.", parsers.count, panel=_JOB
    )
    dataset: str | None = option(
        "NAME", "Take an epoch's size from a known data set: imagenet, coco-2017 …", panel=_JOB
    )
    data_in: str | None = option(
        "CLOUD", "The data is in this cloud; others pay egress.", panel=_JOB
    )
    checkpoint_every: float | None = option(
        "TIME", "Save a checkpoint this often (default 30m).", parsers.duration, panel=_JOB
    )
    cloud: tuple[str, ...] | None = option(
        "NAMES", "Rent only from these clouds, like aws,gcp.", parsers.names, panel=_MAY
    )
    instances: Path | None = option(
        "FILE",
        "Read your own machines and prices (docs/how-to/own-instances.md).",
        Path,
        panel=_MAY,
    )
    deadline: float | None = option(
        "TIME", "Finish this long after each start, like 8d.", parsers.duration, panel=_GOAL
    )

    def check(self) -> None:
        given = self.list_given("epochs", "samples", "dataset")
        if given and self.job.suffix in (".yaml", ".yml"):
            raise UserError(f"{self.job} states its own samples; leave out {given[0]}")


@dataclass(frozen=True, kw_only=True)
class BacktestOptions(ReplayOptions):
    """One call of ``stash market backtest``."""

    markets: tuple[Path, ...] = argument(
        "MARKET...", "Market files; several are merged.", Path, many=True
    )
    policy: tuple[str, ...] = option(
        "NAME,…",
        "Compare policies: stay, multi-cloud, daily, spot-wait, uniform-progress.",
        parsers.names,
        default=",".join(DEFAULT),
        panel=_GOAL,
    )
    starts: str = option(
        "HOW", "Start a run daily, hourly, every 6h …", default="daily", panel=_GOAL
    )
    json: bool = json_flag()


@dataclass(frozen=True, kw_only=True)
class MoveOptions(ReplayOptions):
    """One call of ``stash market advise``."""

    markets: tuple[Path, ...] = argument(
        "MARKET...", "Market files; today's catalog is added.", Path, many=True, default=None
    )
    on: str | None = option(
        "PLACE", "Name the rented machine, like p3.2xlarge@us-east-1a (default: none)."
    )
    output: Path | None = option(
        "FILE",
        "Write a move's SkyPilot task to this file (default: show it).",
        Path,
        "--output",
        "-o",
    )
    json: bool = json_flag()


def import_market(options: MarketImportOptions) -> None:
    """Turn recorded prices and availability into a market file.

    KIND is skypilot: ticks of skypilot-org/spot-traces.

    Examples:
      stash market import skypilot us-west-2a_v100_1.json --spot-price p3.2xlarge=0.918 -o 2023.market.csv.gz
    """
    target = _target(options.output, options.kind)
    found = import_skypilot(options.paths, dict(options.spot_price), dict(options.on_demand_price))
    write_output(target, market_bytes(found.trace, target))
    print_answer(market_page(found.trace, target.name))
    for note in found.notes:
        print_note(f"Left out or assumed: {note}.", False)
    print_written(target, False)


def _target(wanted: Path | None, stem: str) -> Path:
    target = output_file(wanted, stem, ".market.csv.gz")
    if not target.name.endswith((".market.csv", ".market.csv.gz")):
        raise UserError(f"--output {target}: a market's name ends in .market.csv or .market.csv.gz")
    return target


def record(options: RecordOptions) -> None:
    """Add the catalog's current prices to a market file.

    Examples:
      stash catalog refresh && stash market record prices.market.csv.gz
    """
    target = _target(options.market, "prices")
    look, old = current_prices(load_catalog(None), datetime.now(timezone.utc), LATELY_DAYS)
    before = [read_market(target)] if target.exists() else []
    # the last look holds for its ``max_gap`` at most
    write_output(target, market_bytes(merge_traces([*before, look]), target))
    print(printable_line(f"{format_count(len(look.offers), 'offer')} added to {target}."))
    if old:
        print_note(
            f"Left out: {format_count(len(old), 'older price')}; `stash catalog refresh` gets today's.",
            False,
        )


def show(options: ShowMarketOptions) -> None:
    """Show what a market file holds, and what is missing.

    Examples:
      stash market show 2020.market.csv.gz
    """
    shown = market_document if options.json else market_page
    print_answer(shown(*_markets(options.markets)))


def _markets(paths: Sequence[Path]) -> tuple[MarketTrace, str]:
    """The files as one market, and what it is called; raises UserError."""
    found = merge_traces([read_market(path) for path in paths])
    source = ", ".join(path.name for path in paths)
    refuse_absurd(found, load_catalog(None), source)
    return found, source


def backtest(options: BacktestOptions) -> None:
    """Replay a job over recorded weeks under several policies.

    A job is a profile with --epochs and --dataset, --samples or the like, or a job.yaml that states work and rates.
    Every policy is replayed from many starts, beside staying.

    Examples:
      stash market backtest 2020.market.csv.gz --job resnet50.stash.json --epochs 90 --dataset imagenet --deadline 8d
    """
    whole, source = _markets(options.markets)
    trace, job, missing, profile = _job(options, whole)
    names = {each.instance for each in trace.offers}
    hosts = () if profile is None else profile.hosts
    home = next((host.instance for host in hosts if host.instance in names), None)
    found = replay(
        trace, job, options.policy, options.starts, options.deadline, home=home, excluded=missing
    )
    shown = backtest_document if options.json else backtest_page
    print_answer(shown(found, source))


def _job(
    options: ReplayOptions, whole: MarketTrace
) -> tuple[MarketTrace, MarketJob, Mapping[str, str], Profile | None]:
    """(the market of the clouds that were asked for, the job, why an instance has no rate, its profile)."""
    chosen = [
        number
        for number, each in enumerate(whole.offers)
        if not options.cloud or each.cloud in options.cloud
    ]
    if not chosen:
        raise UserError(f"--cloud leaves no offer; the market has {join_names(_clouds(whole))}")
    trace = whole.select_offers(chosen)
    profile = None
    missing: Mapping[str, str] = {}
    if options.job.suffix in (".yaml", ".yml"):
        job = read_job(options.job)
    else:
        profile, _ = find_profile(str(options.job), None)
        catalog = load_catalog(options.instances)
        base = forecast_base(profile, attribute(profile, str(options.job)), catalog=lambda: catalog)
        asked = PlanOptions(epochs=options.epochs, samples=options.samples, dataset=options.dataset)
        samples = training_work(asked, TrainedJob.read_base(base)).samples
        job, missing = job_of_profile(base, samples, trace.offers, catalog)
    given = {
        "data_in": options.data_in,
        "checkpoint_every": options.checkpoint_every,
    }
    job = job.model_copy(update={name: value for name, value in given.items() if value is not None})
    return trace, _locate_data(job, whole), missing, profile


def _clouds(trace: MarketTrace) -> list[str]:
    return sorted({each.cloud for each in trace.offers})


def _locate_data(job: MarketJob, whole: MarketTrace) -> MarketJob:
    """The job with its data in ``cloud/region``, or in a cloud; raises UserError for what is neither."""
    if job.data_in is None:
        return job
    today = current_prices(load_catalog(None), datetime.now(timezone.utc))[0]
    offers = (*today.offers, *whole.offers)
    clouds = sorted({ON_PREMISE, *_clouds(today), *_clouds(whole)})
    places = {
        word.lower(): each[:2]
        for each in offers
        for word in (each.region, f"{each.cloud}/{each.region}")
    }
    named = job.data_in.strip().lower()
    place = "/".join(places.get(named, (named,)))
    if place.partition("/")[0] not in clouds:
        raise UserError(
            f"--data-in {job.data_in}: no offer is of that region or cloud; name another region with its cloud, like "
            f"aws/eu-west-1, of {join_names(clouds, len(clouds))}"
        )
    return job.model_copy(update={"data_in": place})


def advise(options: MoveOptions) -> None:
    """Advise whether to stay or to move now, and why.

    Prices are the catalog's (`stash catalog refresh` renews them) and those of the market files, if any. --samples
    and --epochs count the remaining work. Nothing is started.

    Examples:
      stash market advise --job resnet50.stash.json --epochs 40 --dataset imagenet --on p3.2xlarge@us-east-1:on-demand
    """
    now = datetime.now(timezone.utc)
    catalog = load_catalog(options.instances)
    target = None if options.output is None else output_file(options.output, "move", ".sky.yaml")
    today, old = current_prices(catalog, now)
    whole = merge_traces([*([_markets(options.markets)[0]] if options.markets else []), today])
    trace, job, missing, profile = _job(options, whole)
    market = job_market(job, trace, tariffs(), missing)
    notes = ["the catalog says prices, not whether machines are to be had"]
    held = (
        None
        if options.on is None
        else advising.held_offer(market.trace, options.on, now.timestamp())
    )
    outdated = len(old.intersection(market.offers))
    gone = {each for each in old if each.kind == "spot"} - set(market.offers)
    if gone:
        price = format_count(len(gone), "price")
        notes.append(
            f"left out: {price} on spot of more than {RECENT_DAYS} days, or undated; `stash catalog refresh`"
        )
    if outdated:
        price = format_count(outdated, "price")
        notes.append(
            f"{price} may be {OLD_PRICE_DAYS} days old and more; `stash catalog refresh` renews them"
        )
    found = advising.advise(market, held, now.timestamp(), options.deadline, warnings=notes)
    if found.to is not None:
        found = advising.move_task(found, profile, catalog, target)
    if target is not None and found.task is not None:
        write_output(target, found.task)
    print_answer(advice_document(found) if options.json else advice_page(found))
    if found.task is None:
        return
    if target is not None:
        print_written(target, options.json)
    elif not options.json:
        print(f"\n{found.task}", end="")


app = App(no_args_is_help=True)


@app.callback()
def market() -> None:
    """Replay a job over recorded spot prices, and choose a policy."""


app.command("import")(import_market)
app.command()(record)
app.command()(show)
app.command()(backtest)
app.command()(advise)
