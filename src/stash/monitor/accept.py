"""``stash watch --accept``: a machine is looked at for 15 seconds before a run begins, and refused if it is broken.

The exit code tells a scheduler: 3 where the machine should be given back. Everything else is a warning: a run is only
kept from a machine that lost the comparison, never from one that nothing is known of.
"""

from __future__ import annotations

import json
import sys

from stash.core.printable import printable_line
from stash.monitor.watch_options import WatchCommandOptions


def accept_machine(options: WatchCommandOptions) -> int:
    """Probe this machine quickly and say what to do with it; the exit code. Raises UserError, JobError."""
    from stash import catalog as facts
    from stash.advice.rental import REFUSED
    from stash.measure.command import ProbeOptions, base_of_job, measured_probe
    from stash.measure.host.gpus import count_gpus
    from stash.measure.launcher.engines import Cluster
    from stash.report.output import judged_probe
    from stash.store.storing import keep_copy, past_probes, store_for_copies

    copies = store_for_copies(options.store)
    profile = None if options.baseline is None else str(options.baseline)
    base = base_of_job(profile, options.store)
    wishes = ProbeOptions(quick=True, quiet=True, instance=options.instance)
    found = measured_probe(None, wishes, base, Cluster(count_gpus() or 2))
    assert found is not None  # there is one node
    verdict = judged_probe(found, facts.load(), None, past_probes(copies), base)[1]
    keep_copy(found, copies, None)
    if options.json:
        print(json.dumps(verdict.brief, separators=(",", ":")))
    print(f"stash: {printable_line(verdict.text, 600)}", file=sys.stderr, flush=True)
    return REFUSED if verdict.answer == "give back" else 0
