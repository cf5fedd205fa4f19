"""AWS's Spot Instance Advisor as its page loads it: in which band each type's interruptions of last month were.

The file is ``spot-advisor-data.json`` of AWS's public bucket ``spot-bid-advisor``. It has no licence and no date, so
Stash reads a user's copy and ships none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stash.base.errors import UnitError, UserError
from stash.base.files import read_up_to
from stash.base.printable import shortened
from stash.base.spot.risk import InterruptionBand
from stash.base.words.revocations import parse_interruptions

AGAIN = "get it with: curl -O https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
_MOST_BYTES = 64 * 2**20
_SYSTEM = "Linux"


def read_advisor(path: Path, region: str) -> dict[str, InterruptionBand | None]:
    """The band of every type in a region; ``None`` where it has no upper end, as >20 %. Raises UserError."""
    try:
        content = read_up_to(path, _MOST_BYTES)
        data = json.loads(content)
        labels = {each["index"]: str(each["label"]) for each in data["ranges"]}
        places: dict[str, Any] = data["spot_advisor"]
        types = {} if region not in places else dict(places[region][_SYSTEM])
        found = {str(name): _band(labels[each["r"]]) for name, each in types.items()}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is not the file of AWS's Spot Instance Advisor; {AGAIN}") from error
    if not found:
        raise UserError(f"{path} has nothing of the region {shortened(region, 60)}; {AGAIN}")
    return found


def _band(label: str) -> InterruptionBand | None:
    if label.strip().startswith(">"):
        return None
    try:
        low, high = parse_interruptions(f"{label}/month")
    except UnitError as error:
        raise ValueError(label) from error
    return InterruptionBand(low=low, high=high)
