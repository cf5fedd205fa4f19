"""The logs of the study of 2020 as a market: AWS's price changes, Azure's daily tables, pings of running machines.

Of stanford-futuredata/training_on_a_dime (MIT licence), by path; what cannot be placed is counted, and never guessed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.core.user_files import text_of
from stash.market.market_importers import (
    AWS_TYPES,
    CONFIRM_SECONDS,
    MAX_BYTES,
    Imported,
    MarketRows,
    import_aws,
    utc_seconds,
)
from stash.market.market_trace import DAY, MarketOffer, MarketTrace, merged

_DESCRIBED = "the logs of training_on_a_dime"
_AZURE_DATE = "%m/%d/%Y"
_AZURE_REGIONS = {
    "us_east": "eastus", "us_north_central": "northcentralus", "us_south_central": "southcentralus",
}  # fmt: skip
"""The files' names, and Azure's, as the catalog has them; types, too, are called as there."""
_PING = re.compile(
    r"\[(?P<at>[^\]]+)\] (?:Created instance (?P<new>\S+) with (?P<count>\d+) GPU\(s\) of type (?P<gpu>\S+) in zone "
    r"(?P<zone>\S+)|Instance (?P<id>\S+) (?P<state>running|not running) in zone (?P<where>\S+)|Instance with "
    r"(?P<failed_count>\d+) GPU\(s\) of type (?P<failed_gpu>\S+) creation failed)"
)


def import_dispa(folder: Path, regions: Sequence[str] = ("us-east-1",)) -> Imported:
    """The folder ``logs``: AWS's prices in ``regions`` (none: all), Azure's tables, pings; raises UserError."""
    source = f"stanford-futuredata/training_on_a_dime {folder.name}, MIT licence"
    costs = folder / "aws" / "cost"
    if not costs.is_dir():
        raise UserError(f"{folder} is not the folder logs of training_on_a_dime: there is no aws/cost in it")
    there = sorted(each.name for each in costs.iterdir() if each.is_dir())
    missing = next((each for each in regions if each not in there), None)
    if missing is not None:
        raise UserError(f"--regions {missing}: the logs have {listed(there, 20)}")
    prices = import_aws([costs / each for each in regions or there], source)
    parts, notes = [prices.trace], list(prices.notes)
    azure = sorted((folder / "azure" / "cost").glob("*.csv"))
    if azure:
        parts.append(_azure(azure, source))
    for pings in sorted((folder / "aws" / "availability").glob("*.out")):
        found, unplaced = _pings(pings, source)
        parts.append(found)
        if unplaced:
            notes.append(f"{pings.name}: {unplaced} failed starts could be in several zones and are left out")
    return Imported(merged(parts), notes)


def _azure(files: Sequence[Path], source: str) -> MarketTrace:
    table, last = MarketRows(source), 0.0
    for file in files:
        rows = list(csv.reader(io.StringIO(text_of(file, "Azure's prices", _DESCRIBED))))
        for number, row in enumerate(rows[1:], 2):
            try:
                at = datetime.strptime(row[0], _AZURE_DATE).replace(tzinfo=timezone.utc).timestamp()
                for instance, cell in zip(rows[0][1:], row[1:], strict=False):
                    if cell.strip():
                        region = _AZURE_REGIONS.get(file.stem, file.stem)
                        offer = MarketOffer("azure", region, "", "Standard_" + instance.replace(" ", "_"), "spot")
                        table.add(offer, at, float(cell.replace("$", "").replace(",", "")))
                        last = max(last, at)
            except (ValueError, IndexError) as error:
                raise UserError(f"{file}:{number}: {error}; a line begins with a date like 2/24/2020") from error
    table.end(last + DAY)
    return table.trace()


def _pings(file: Path, source: str) -> tuple[MarketTrace, int]:
    """What was seen of each machine that was kept running; failed starts whose zone is not said, and not certain."""
    table = MarketRows(source)
    kinds: dict[str, tuple[str, int, str]] = {}
    alive: dict[tuple[str, int, str], str] = {}
    states: dict[tuple[str, int, str], tuple[float, int]] = {}
    unplaced = 0
    lines = text_of(file, "the pings", _DESCRIBED, MAX_BYTES).splitlines()
    for line in lines:  # which zones there are, is said only of machines that came
        match = _PING.match(line)
        if match and match["new"]:
            kinds[match["new"]] = (match["gpu"].removeprefix("nvidia-tesla-"), int(match["count"]), match["zone"])
    zones = sorted({zone for _, _, zone in kinds.values()})
    for line in lines:
        match = _PING.match(line)
        if match is None:
            continue
        at = utc_seconds(match["at"])
        if match["failed_gpu"]:
            gpu, count = match["failed_gpu"].removeprefix("nvidia-tesla-"), int(match["failed_count"])
            free = [(gpu, count, zone) for zone in zones if (gpu, count, zone) not in alive]
            if len(free) != 1:
                unplaced += 1
                continue
            slot, there = free[0], 0
        elif match["new"]:
            slot, there = kinds[match["new"]], 1
            alive[slot] = match["new"]
        elif match["id"] in kinds:
            slot, there = kinds[match["id"]], int(match["state"] == "running")
            if there == 0 and alive.get(slot) == match["id"]:
                del alive[slot]
        else:
            continue
        before = states.get(slot)
        instance = AWS_TYPES.get(slot[:2])
        if instance is None:
            continue
        if before is None or before[1] != there or at - before[0] >= CONFIRM_SECONDS:
            zone = slot[2]
            table.add(MarketOffer("aws", zone[:-1], zone, instance, "spot"), at, None, there)
            states[slot] = (at, there)
        last = at
    if table.at:
        table.end(last + 1)
    return table.trace(), unplaced
