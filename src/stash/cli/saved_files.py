"""Saved files, whatever they are: how each kind that is neither a profile nor a probe is recognised, read, and shown.

A page's module is imported for its own kind of file alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stash.core.documents import FLEET_PLAN, PLAN, SPOT_LOG, begins_as, is_one, is_watch_record
from stash.core.records.host import Probe
from stash.core.records.profile import Profile
from stash.store.storing import FoundRun, find_run
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
    if is_watch_record(file):
        from stash.monitor import page as of_watch
        from stash.monitor.records import load_record as load_watched

        watched = load_watched(path)
        document = partial(of_watch.document, watched)
        return SavedFile(
            "a record of a watched run", partial(of_watch.page, watched, path.name), document
        )
    if is_one(file, PLAN) and begins_as(file, FLEET_PLAN):
        from stash.spot.pages import fleet_plan as of_fleet
        from stash.spot.spot_files import read_plan

        fleet = read_plan(path)
        return SavedFile(
            "a plan", partial(of_fleet.page, fleet, path.name), partial(of_fleet.document, fleet)
        )
    if is_one(file, PLAN):
        from stash.plan import page as of_plan
        from stash.plan.records import load_plan

        plan = load_plan(file)
        return SavedFile("a plan", partial(of_plan.page, plan), partial(of_plan.document, plan))
    if is_one(file, SPOT_LOG):
        from stash.spot.pages import run_report as of_run
        from stash.spot.spot_files import load_spot_log

        log = load_spot_log(path)
        return SavedFile(
            "a log of a run", partial(of_run.page, log, path.name), partial(of_run.document, log)
        )
    run = find_run(file, store)
    saved: Any = run.artefact
    if isinstance(saved, Profile | Probe):
        return run
    if hasattr(saved, "fix_schema"):
        from stash.fix import page as of_fix

        pages = partial(of_fix.page, saved, name), partial(of_fix.document, saved)
        return SavedFile("a record of a fix", *pages)
    from stash.trace import page as of_trace

    pages = partial(of_trace.page, saved, name), partial(of_trace.document, saved)
    return SavedFile("an account of traces", *pages)
