"""Saved files, whatever they are: how each kind that is neither a profile nor a probe is recognised, read, and shown.

A page's module is imported for its own kind of file alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stash.core.fix_records import Fix
from stash.core.trace_records import Trace
from stash.monitor.records import is_record
from stash.monitor.records import load as load_watched
from stash.plan.records import is_plan, load_plan
from stash.spot.spot_files import is_fleet_plan, is_spot_log, load_spot_log, read_plan
from stash.store.storing import FoundRun, found
from stash.ui.page import Page


class SavedFile(NamedTuple):
    """One that is neither, read."""

    what: str
    """Its kind, as a sentence names it."""
    page: Callable[[], Page]
    document: Callable[[], dict[str, Any]]
    """What ``--json`` prints."""


def saved_file(file: str, name: str, store: str | None) -> SavedFile | FoundRun:
    """Read ``file``, which its page calls ``name``, or what has that id in the store; raises UserError, StoreError.

    A ``FoundRun`` is of a profile or a probe.
    """
    path = Path(file)
    if is_record(file):
        from stash.monitor import page as of_watch

        watched = load_watched(path)
        document = partial(of_watch.document, watched)
        return SavedFile("a record of a watched run", partial(of_watch.page, watched, path.name), document)
    if is_plan(file) and is_fleet_plan(path):
        from stash.spot.pages import fleet_plan as of_fleet

        fleet = read_plan(path)
        return SavedFile("a plan", partial(of_fleet.page, fleet, path.name), partial(of_fleet.document, fleet))
    if is_plan(file):
        from stash.plan import page as of_plan

        plan = load_plan(file)
        return SavedFile("a plan", partial(of_plan.page, plan), partial(of_plan.document, plan))
    if is_spot_log(file):
        from stash.spot.pages import run_report as of_run

        log = load_spot_log(file)
        return SavedFile("a log of a run", partial(of_run.page, log, path.name), partial(of_run.document, log))
    run = found(file, store)
    if isinstance(run.artefact, Fix):
        from stash.fix import page as of_fix

        pages = partial(of_fix.page, run.artefact, name), partial(of_fix.document, run.artefact)
        return SavedFile("a record of a fix", *pages)
    if isinstance(run.artefact, Trace):
        from stash.trace import page as of_trace

        traced = partial(of_trace.page, run.artefact, name), partial(of_trace.document, run.artefact)
        return SavedFile("an account of traces", *traced)
    return run
