"""The options of every command of ``stash market``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.market.policies import DEFAULT
from stash.ui.options import Options, argument, json_flag, option

_JOB, _MAY, _GOAL = "The job", "Machines to consider", "Goal"


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
    json: bool = json_flag()


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
    data_size: float | None = option(
        "SIZE", "Set the size of the data set (default: as profiled).", parsers.size, panel=_JOB
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
        "Compare policies: stay, gpu-type, packed, multi-cloud, daily, look-ahead:6h, spot-wait, uniform-progress.",
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
