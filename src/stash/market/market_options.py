"""The options of every command of ``stash market``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.market.decisions import Objective
from stash.market.jobs import Known, MarketJob
from stash.market.market_rules import DEFAULT
from stash.ui.options import Options, argument, flag, json_flag, option

_JOB, _MAY, _GOAL, _SHOWN = "The job", "What may be rented", "What is wanted", "What is shown"
ImportKind = Literal["aws", "skypilot", "catalog"]
_KINDS = ("aws", "skypilot", "catalog")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(",") if each.strip())
    if not names:
        raise UnitError("name some, like stay,daily,look-ahead")
    return names


def _priced(text: str) -> tuple[str, float]:
    name, equals, price = text.partition("=")
    if not equals or not name.strip():
        raise UnitError("it is a type and dollars an hour, like p3.2xlarge=0.918")
    return name.strip(), parsers.price(price if "/" in price else f"{price.strip()}/h")


@dataclass(frozen=True, kw_only=True)
class MarketImportOptions(Options):
    """One call of ``stash market import``."""

    kind: ImportKind = argument("KIND", "aws, skypilot or catalog.", parsers.one_of(_KINDS))
    paths: tuple[Path, ...] = argument(
        "PATH...", "Files or folders; of the catalog none.", Path, many=True, default=None
    )
    output: Path | None = option("FILE", "Where the market goes: .market.csv or .market.csv.gz.", Path,
        "--output", "-o")  # fmt: skip
    inverted: bool = flag("SkyPilot's ticks count what could not be had, as its authors' simulator reads them.")
    spot_price: tuple[tuple[str, float], ...] = option(
        "TYPE=DOLLARS", "An hour, of traces without prices; may be given several times.", _priced, many=True
    )
    on_demand_price: tuple[tuple[str, float], ...] = option(
        "TYPE=DOLLARS", "Adds an on-demand offer in each region, always there; may be given several times.", _priced,
        many=True,
    )  # fmt: skip
    json: bool = json_flag()

    def check(self) -> None:
        if self.kind != "catalog" and not self.paths:
            raise UserError(f"what is to be imported? Name files or folders: stash market import {self.kind} PATH")


@dataclass(frozen=True, kw_only=True)
class RecordOptions(Options):
    """One call of ``stash market record``."""

    market: Path = argument("MARKET", "The file that grows; a new one if there is none.", Path)
    cloud: tuple[str, ...] | None = option("NAMES", "Like aws,gcp.", parsers.names)


@dataclass(frozen=True, kw_only=True)
class ShowMarketOptions(Options):
    """One call of ``stash market show``."""

    markets: tuple[Path, ...] = argument("MARKET...", "Market files; several are merged.", Path, many=True)
    json: bool = json_flag()


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(Options):
    """What backtests and advice share."""

    job: Path = option("FILE", "A profile, or a job.yaml (docs/market.md).", Path, default=..., panel=_JOB)
    epochs: float | None = option("N", "Passes over the data set.", parsers.count, panel=_JOB)
    samples: float | None = option(
        "N", "Samples of an epoch, or without --epochs of the whole training, like 1281167 or 50M.", parsers.count,
        panel=_JOB,
    )  # fmt: skip
    dataset: str | None = option(
        "NAME", "A known data set, whose size an epoch is: imagenet, coco-2017, openwebtext …", panel=_JOB
    )
    start: tuple[float, float] | None = option(
        "TIME", "Until machines are up, like 5m or 3m..8m.", parsers.durations, panel=_JOB
    )
    download: float | None = option("RATE", "Of a node, like 500MB/s.", parsers.rate, panel=_JOB)
    data_size: float | None = option("SIZE", "Of the data set; else as profiled.", parsers.size, panel=_JOB)
    data_in: str | None = option("CLOUD", "Where the data lie: others pay egress.", panel=_JOB)
    checkpoint_size: float | None = option(
        "SIZE", "Of a checkpoint; else three times the parameters.", parsers.size, panel=_JOB
    )
    checkpoint_every: float | None = option(
        "TIME", "Of work between two checkpoints; else 30m.", parsers.duration, panel=_JOB
    )
    cloud: tuple[str, ...] | None = option("NAMES", "Like aws,gcp.", parsers.names, panel=_MAY)
    region: tuple[str, ...] | None = option("NAMES", "Like us-east-1.", parsers.names, panel=_MAY)
    watched_only: bool = flag("Take nothing to be there that nobody saw to be there.", panel=_MAY)
    instances: Path | None = option(
        "FILE", "Your own machines and prices (docs/how-to/own-instances.md); else the usual file.", Path, panel=_MAY
    )
    deadline: float | None = option("TIME", "By when, from each start on, like 8d.", parsers.duration, panel=_GOAL)
    objective: Objective = option(
        "dollars|time",
        "What policies make least.",
        parsers.one_of(get_args(Objective)),
        default="dollars",
        panel=_GOAL,
    )
    hour_worth: float | None = option(
        "DOLLARS",
        "What an hour of waiting costs you, which policies weigh with the bill.",
        parsers.dollars,
        panel=_GOAL,
    )

    def stated(self, job: MarketJob) -> MarketJob:
        """The job with what was typed."""
        given = {
            "boot": None if self.start is None else sum(self.start) / 2,
            "fetch": self.download,
            "data": self.data_size,
            "data_in": self.data_in,
            "checkpoint": self.checkpoint_size,
            "checkpoint_every": self.checkpoint_every,
        }
        update: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        known: dict[str, Known] = {**job.known, **dict.fromkeys(update, "assumed")}
        return job.model_copy(update={**update, "known": known})


@dataclass(frozen=True, kw_only=True)
class BacktestOptions(ReplayOptions):
    """One call of ``stash market backtest``."""

    markets: tuple[Path, ...] = argument("MARKET...", "Market files; several are merged.", Path, many=True)
    policy: tuple[str, ...] = option(
        "NAME,…",
        "stay, gpu-type, packed, multi-cloud, daily, look-ahead:6h, spot-wait, uniform-progress.",
        _names, default=",".join(DEFAULT), panel=_GOAL,
    )  # fmt: skip
    starts: str = option("HOW", "How often a run begins: daily, hourly, 6h …", default="daily", panel=_GOAL)
    json: bool = json_flag(panel=_SHOWN)
    output: Path | None = option(
        "FILE", "Write it too: a page (.html), or cost by policy as a picture (.svg, .png, .pdf).", Path, "--output",
        "-o", panel=_SHOWN,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MoveOptions(ReplayOptions):
    """One call of ``stash market advise``."""

    markets: tuple[Path, ...] = argument(
        "MARKET...", "What was recorded; today's catalog is added to it.", Path, many=True, default=None
    )
    on: str | None = option("PLACE", "What is rented now, like p3.2xlarge@us-east-1a; else nothing is.")
    policy: str = option("NAME,…", "One policy: look-ahead:6h, daily, uniform-progress …", default="look-ahead")
    output: Path | None = option("FILE", "Where a move's SkyPilot task goes; else it is shown.", Path, "--output",
        "-o")  # fmt: skip
    apply: bool = flag("Start the move: run the command that is printed.")
    json: bool = json_flag()
