"""``stash fix`` and ``stash run``: parse, profile, try, prove, show, save; no file is changed without --apply."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from stash.core import parsers
from stash.core.errors import ArtefactError, JobError, UserError
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.output_files import output_file
from stash.core.printable import last_of, print_written, printable, printable_line
from stash.core.secrets import mask_text
from stash.core.units import format_minutes
from stash.measure.command import own_job
from stash.measure.ranks import LocalRankOptions, RankOptions, resolve_cluster
from stash.report.output import print_output
from stash.store.storing import keep_copy, store_for_copies, store_option
from stash.ui.arguments import ProfileCommand
from stash.ui.options import flag, json_flag, option, quiet_flag

if TYPE_CHECKING:
    from stash.advice.case import Case
    from stash.core.fix_records import Fix, Tried
    from stash.fix.patch import Patch, WrittenChange
    from stash.fix.script_changes import ScriptChange
    from stash.fix.search_state import Candidate, Search
    from stash.measure.launcher.measurement import Result
    from stash.measure.launcher.session import ProfileSession
    from stash.measure.launcher.trials import TrialRun

_HOW = "How to search"
_PROFILE_SHARE, _PROFILE_SECONDS = 0.02, 60.0
"""Of the time, for the profile that comes first, which only orders what is tried; and seconds at most."""
_STEPS, _SECONDS = 20, (3.0, 15.0)
"""A launch times so many steps, within these seconds."""
_OCCURRENCES = 2.5
"""Of what comes now and then: as many lie between some first steps and the last of a launch."""
_BUSY = 0.05
"""Of the step, what other work costs it: from there on launches watch their steps, and so know what to subtract."""
_OUTSIDE = 3
"""Pieces of advice for what lies outside the script."""


def _parse_knobs(text: str) -> tuple[str, ...]:
    from stash.fix.space import NAMES

    return _parse_names(text, NAMES)


def _parse_names(text: str, known: Sequence[str] = ("numerics", "cache")) -> tuple[str, ...]:
    found = parsers.names(text)
    if unknown := [name for name in found if name not in known]:
        raise UserError(f"there is no {', '.join(unknown)}; the names are {', '.join(known)}")
    return found


@dataclass(frozen=True, kw_only=True)
class FixOptions(LocalRankOptions):
    """One call of ``stash fix``."""

    parsed_by: ClassVar[type] = ProfileCommand

    try_only: tuple[str, ...] | None = option(
        "A,B,C",
        "Try only these changes, like workers,bucket,pin (default: all promising ones).",
        _parse_knobs,
        "--try",
        panel=_HOW,
    )
    budget: float = option(
        "TIME",
        "Take at most this long, the profile included.",
        parsers.duration,
        default="5m",
        panel=_HOW,
    )
    allow: tuple[str, ...] = option(
        "WHAT",
        "Also keep changes of this kind: numerics (bfloat16), cache (pays late).",
        _parse_names,
        default=(),
        panel=_HOW,
    )
    apply: bool = flag("Apply the patch; a copy keeps the old script.")
    output: Path | None = option(
        "FILE", "Write the record to this file, and the patch beside it.", Path, "-o", "--output"
    )
    json: bool = json_flag()
    quiet: bool = quiet_flag()
    store: str | None = store_option()


def fix(options: FixOptions, context: typer.Context) -> None:
    """Make a training script faster: try changes, prove savings, write a patch.

    The script is started many times for a few seconds, with one setting changed, and compared with unmodified
    launches. A change is kept if it trains the same and is faster in fresh rounds, with one error rate for the whole
    search. Files stay as they are unless you give --apply.

    Examples:
      stash fix train.py --lr 0.1
      stash fix --try workers,bucket --budget 10m train.py
      stash fix --apply train.py
    """
    require_linux("stash fix")
    from stash.core.documents import FIX
    from stash.measure.launcher.folder_lock import output_lock
    from stash.measure.launcher.profile_options import ProfileOptions
    from stash.measure.launcher.session import ProfileSession

    job = own_job(context.obj, "fix")
    asked = RankOptions(nproc_per_node=options.nproc_per_node)
    where = resolve_cluster(asked, ranks=job.is_zoo_workload)
    if where.nnodes > 1 or where.is_inherited:
        raise UserError(
            "stash fix starts the script itself, on one machine; leave the other nodes out"
        )
    stem = job.title.removesuffix(".py").removesuffix(".sh").replace("/", "-")
    target = output_file(options.output, stem, FIX.suffix)
    copies = store_for_copies(options.store)
    budget = min(_PROFILE_SECONDS, _PROFILE_SHARE * options.budget)
    # a script that starts slowly may, as long as there is time
    session = ProfileSession(
        job, where, ProfileOptions(budget=budget, start_timeout=options.budget)
    )
    session.first_request()
    with interrupted_by(*REQUESTS), session.folder_lock, output_lock(target):
        began = time.monotonic()
        session.launches.leave_nothing(began + options.budget)
        result = _profile_script(session, began + options.budget, options.quiet)
        found, patch = _try_changes(session, result, options, began)
        keep_copy(found, copies, _save_and_show(found, patch, target, options))
    if found.interrupted:
        raise typer.Exit(130)


def _profile_script(session: ProfileSession, until: float, quiet: bool) -> Result:
    """The profile that the search starts from; raises JobError, UserError, or Exit after an interrupt."""
    from stash.measure.live import Progress
    from stash.ui.terminal import progress_console

    with Progress(session, progress_console(quiet)) as progress:
        result = session.measure_job(progress.show)
    if result.interrupted:
        print("interrupted before anything was tried: nothing is kept", file=sys.stderr)
        raise typer.Exit(130)
    if result.profile is None or result.failure is not None:
        failure = result.failure
        if failure is None:
            raise JobError("rank 0 of the script runs on another machine; start stash fix there")
        if time.monotonic() >= until:
            raise _late_error(session)
        if failure.own_words:
            print(printable(mask_text(last_of(failure.own_words.rstrip()))), file=sys.stderr)
        raise (UserError if failure.users_mistake else JobError)(failure.sentence)
    return result


def _try_changes(
    session: ProfileSession, result: Result, options: FixOptions, began: float
) -> tuple[Fix, Patch]:
    """Launch after launch, until it is known what to keep."""
    from stash.advice.case import Case
    from stash.analysis.attribution import attribute
    from stash.fix.screening import find_changes
    from stash.fix.script_changes import learn_facts, merge_changes
    from stash.fix.search_state import begin_search, run_search
    from stash.fix.space import propose_changes
    from stash.measure.launcher.trials import Trials

    assert result.profile is not None
    case = Case(attribute(result.profile), result.profile)
    seconds = _launch_seconds(case)
    profiled = time.monotonic() - began
    until = began + options.budget
    if time.monotonic() + (profiled - session.measurement.seconds_spent()) + seconds > until:
        raise _late_error(session)
    with Trials(session, until=until, bare=not _is_disturbed(case)) as trials:

        def run(changes: Sequence[ScriptChange], steps: int | None) -> TrialRun:
            most = seconds if steps is None else options.budget
            return trials.run_trial(*merge_changes(changes), most, steps)

        def say(text: str) -> None:
            left = format_minutes(max(0.0, until - time.monotonic()))
            line = f"  {text} ({left} left of {format_minutes(options.budget)})"
            if not options.quiet:
                print(printable_line(line), file=sys.stderr, flush=True)

        say("timing the unmodified script, with fixed seeds")
        first = _time_first(session, run, until)
        changes, left = propose_changes(learn_facts(case, first), options.try_only or ())
        search = begin_search(
            changes, first, until - time.monotonic(), True, frozenset(options.allow)
        )
        run_search(
            search,
            find_changes(search),
            run,
            lambda rungs, rounds, stays: trials.take_turns(rungs, rounds, *merge_changes(stays)),
            lambda: until - time.monotonic(),
            say,
        )
    record, patch = _make_fix(session, search, case)
    took = {"profile_seconds": profiled, "elapsed_seconds": time.monotonic() - began}
    reasons = tuple(f"{knob}: {why}" for knob, why in left.items())
    return record.model_copy(update={**took, "left": reasons}), patch


def _is_disturbed(case: Case) -> bool:
    """Whether launches watch their steps, to know what other work costs them."""
    others = case.breakdown.disturbed
    return others is not None and others.time.value >= _BUSY * case.breakdown.step_seconds


def _time_first(
    session: ProfileSession,
    run: Callable[[Sequence[ScriptChange], int | None], TrialRun],
    until: float,
) -> TrialRun:
    """A launch as typed; raises JobError where the script cannot be started again, UserError, or Exit."""
    try:
        first = run([], None)
    except KeyboardInterrupt:
        print("interrupted before anything was tried: nothing is kept", file=sys.stderr)
        raise typer.Exit(130) from None
    if first.failure is None and first.step_seconds is not None:
        return first
    if time.monotonic() >= until:
        raise _late_error(session)
    why = "no step of it was timed" if first.failure is None else first.failure.sentence
    raise JobError(f"{session.job.title} cannot be started again, so nothing was tried: {why}")


def _launch_seconds(case: Case) -> float:
    """Seconds in which a launch times steps: enough to see twice what comes now and then, and takes much."""
    from stash.core.ledger_rows import EPOCH_START, EVALUATION
    from stash.fix.search_state import LARGE

    run, wanted = case.breakdown.run, _STEPS * case.breakdown.step_seconds
    for row in run.rows if run is not None else ():
        if row.name in (EPOCH_START, EVALUATION) and row.every and (row.share or 0.0) >= LARGE:
            assert run is not None
            wanted = max(wanted, _OCCURRENCES * row.every * run.step_seconds)
    return min(max(_SECONDS[0], wanted), _SECONDS[1])


def _late_error(session: ProfileSession) -> UserError:
    """What to say where the time does not suffice to start the script as typed once more."""
    return UserError(
        f"--budget is over before {session.job.title} can be tried: it was profiled, and is started five times and "
        "more after that; give at least ten times what it takes to start, like --budget 10m"
    )


def _describe_candidate(each: Candidate, written: WrittenChange | None, search: Search) -> Tried:
    from stash.core.fix_records import CallPlace, Tried

    change = each.change
    more: dict[str, Any] = {}
    if written is not None:
        place = CallPlace(file=written.file, line=written.line) if written.file else None
        more = {
            "written": written.way,
            "how": written.how,
            "place": place,
            "variables": dict(change.variables),
        }
    if change.knob == "compile":
        took: dict[tuple[str, ...], float] = {}
        for row in search.launches:
            if row.elapsed_seconds and row.stage != "turns" and not row.failure:
                took[row.changes] = min(
                    row.elapsed_seconds, took.get(row.changes, row.elapsed_seconds)
                )
        if (change.name,) in took:
            more["compile_seconds"] = max(0.0, took[(change.name,)] - took[()])
    return Tried(
        name=change.name,
        knob=change.knob,
        text=change.text,
        effect=change.effect,
        stalls=change.stalls,
        forecast=change.forecast,
        standing=each.standing,
        why=each.why,
        saves=each.saves,
        proof=each.proof,
        **more,
    )


def _make_fix(session: ProfileSession, search: Search, case: Case) -> tuple[Fix, Patch]:
    from stash.core.fix_records import Fix
    from stash.core.records.base import utc_now
    from stash.core.version import __version__
    from stash.fix.decision import ERROR_RATE
    from stash.fix.patch import Patch

    final = search.final
    job = session.job
    patch = Patch()
    script = str(Path(job.target).resolve()) if job.kind == "script" else None
    kept = [each for each in search.candidates.values() if each.standing == "kept"]
    written = {each.name: patch.add(each.change, script) for each in kept}
    return Fix(
        stash_version=__version__,
        created=utc_now(),
        workload=job.title,
        command=job.kept_command,
        ranks=len(case.profile.ranks),
        engine=session.measurement.cluster.engine,
        error_rate=ERROR_RATE,
        step_seconds=search.typed,
        together=final.together,
        after_seconds=final.after_seconds if final.together is not None else None,
        final_rounds=final.rounds,
        final_in_turns=final.in_turns,
        launches=tuple(search.launches),
        tried=tuple(
            _describe_candidate(each, written.get(each.name), search)
            for each in search.candidates.values()
        ),
        advice=_list_advice(case, search.find_candidates(final.kept)),
        by_hand=_describe_by_hand(case, search),
        elapsed_seconds=0.0,
        repeats=search.repeats,
        interrupted=final.interrupted,
        patch=patch.make_diff(),
        sources=patch.source_digests(),
        proof=final.proof,
    ), patch


_OURS = ("workers", "shard", "no-sync", "half-precision")
"""Remedies that are, or whose kin are, in the space of changes, beside those that name a knob."""


def _list_advice(case: Case, kept: Sequence[Candidate]) -> tuple[str, ...]:
    """What the advice says that no change to the script does, with its forecast.

    Of stalls that a kept change acts on there is none: what is left of them was not profiled. Nor of those that the
    short profile does not show to be there.
    """
    from stash.advice.remedies import REMEDIES
    from stash.core.units import format_seconds
    from stash.fix.decision import WORTH

    found = dict[str, float]()
    least = WORTH * case.breakdown.step_seconds
    less = {name for each in kept for name in each.change.stalls}
    stalls = [each.name for each in case.breakdown.stalls if each.low is not None and each.low > 0]
    rows = case.breakdown.run.rows if case.breakdown.run is not None else ()
    between = [row.name for row in rows if row.is_between_steps and row.least > 0]
    for name in [each for each in (*stalls, *between) if each not in less]:
        for remedy in REMEDIES[name](case) if name in REMEDIES else ():
            is_ours = remedy.name in _OURS or remedy.knob
            if not is_ours and remedy.saves is not None and remedy.saves >= least:
                cost = f"; {remedy.cost}" if remedy.cost else ""
                found[f"{remedy.text} (saves {format_seconds(remedy.saves)} by forecast{cost})"] = (
                    remedy.saves
                )
    return tuple(sorted(found, key=lambda text: -found[text])[:_OUTSIDE])


def _describe_by_hand(case: Case, search: Search) -> str:
    """The largest row between steps, if that is more than is saved, and no change acts on it; else nothing."""
    from stash.advice.verdict import describe_row
    from stash.analysis.breakdown import SMALL_SHARE

    run, together = case.breakdown.run, search.final.together
    if run is None:
        return ""
    least = max(SMALL_SHARE * run.step_seconds, together.value if together is not None else 0.0)
    changed = {name for each in search.candidates.values() for name in each.change.stalls}
    rows = [
        row
        for row in run.rows
        if row.is_between_steps and row.name not in changed and row.least > least
    ]
    largest = max(rows, key=lambda row: row.seconds, default=None)
    return "" if largest is None else describe_row(case, largest)


def _save_and_show(found: Fix, patch: Patch, target: Path, options: FixOptions) -> Path:
    """Save record and patch, show what was found even if that fails, apply if asked; the value is the record's."""
    from stash.core.fix_records import FILE
    from stash.core.output_files import write_output
    from stash.fix.page import document, page
    from stash.fix.patch import apply

    try:
        if options.output is None:  # another fix may have taken the name since
            target = FILE.save_new(found, target)
        else:
            FILE.save(found, target)
        beside = target.with_name(
            target.name.removesuffix(FILE.kind.suffix).removesuffix(".json") + ".fix.patch"
        )
        if found.patch:
            write_output(beside, patch.make_diff())
    except ArtefactError:
        print_output(document(found) if options.json else page(found))
        raise
    print_output(
        document(found)
        if options.json
        else page(found, str(target), str(beside) if found.patch else "")
    )
    for written in (target, *([beside] if found.patch else [])):
        print_written(written, options.json)
    out = sys.stderr if options.json else sys.stdout
    if options.apply and not found.patch:
        why = "no change of this script is proven to save time"
        why = "no patch writes what is kept, see above" if found.kept else why
        print(f"nothing to apply: {why}", file=out)
    elif options.apply:
        print(printable(found.patch), file=out)
        for line in apply(patch, found.sources):
            print(printable_line(line), file=out)
    return target


@dataclass(frozen=True, kw_only=True)
class StartOptions(RankOptions):
    """One call of ``stash run``."""

    parsed_by: ClassVar[type] = ProfileCommand

    record: Path = option(
        "FILE", "Use this *.fix.json of `stash fix`.", Path, "--with", default=...
    )


def run(options: StartOptions, context: typer.Context) -> None:
    """Run a script with the environment `stash fix` chose.

    Examples:
      stash run --with train.fix.json train.py
    """
    require_linux("stash run")
    from stash.fix.running import start_job

    start_job(options.record, own_job(context.obj, "run"), options)
