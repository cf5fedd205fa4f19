"""``stash spot run PLAN --infra … --bucket … --sync SCRIPT``: a synchronous script on rented machines.

Parses, checks and shows; ``rent/spot`` rents, follows and ends.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from stash.base.errors import UserError
from stash.cli.spot.rented import agreed, judged, run_controller, say
from stash.cli.spot.words import checkpoint_interval


def run_rented_sync(
    plan: Path, script: Sequence[str], infra: str | None, max_cost: float | None, bucket: str | None, yes: bool,
    least: int, every: str | None,
) -> None:  # fmt: skip
    """Print every YAML and command, and with ``yes`` run them until the script ends or the money is spent."""
    from stash.base.words.units import format_seconds
    from stash.keep import catalog
    from stash.keep.fleets import read_plan
    from stash.rent.spot import asked
    from stash.rent.spot.succession import GangController

    if infra is None:
        raise UserError(
            "name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes); to rehearse it "
            "here, add --on testbed or --on local"
        )
    folder = asked.run_folder(plan, Path.cwd().resolve())
    chosen = read_plan(plan)
    interval, why = checkpoint_interval(chosen, every)
    request = asked.gang(chosen, script, infra, folder, catalog.load(), date.today(), bucket, least, interval)
    again = ["stash", "spot", "run", str(plan), "--infra", infra, "--bucket", str(bucket)]
    again += [] if every is None else ["--checkpoint-every", every]
    again += [] if least == 1 else ["--least", str(least)]
    say(f"# A checkpoint every {format_seconds(interval)}, {why}; one more at a notice, if there is time.")
    if not agreed(request, max_cost, again, ["--sync", *script], yes):
        return
    assert max_cost is not None
    outcome = run_controller(GangController, request, max_cost)
    say(f"{outcome.reason}, ${outcome.dollars:.2f} at most. The checkpoints are in {bucket}.")
    if outcome.fetched is not None:
        say(f"What happened is in {shlex.quote(outcome.fetched)}.")
    judged(outcome, "The script has not ended by itself")
