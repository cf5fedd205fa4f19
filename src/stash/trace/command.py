"""``stash trace``: what traces that other tools recorded say of a job's steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core.documents import KINDS, TRACE
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.imports import require_package
from stash.core.output_files import output_file
from stash.core.printable import print_written, printable_line
from stash.report.output import print_output
from stash.ui.options import (
    Options,
    argument,
    check_one_format,
    flag,
    json_flag,
    markdown_flag,
    option,
)

if TYPE_CHECKING:
    from stash.core.trace_records import Trace
    from stash.trace.spans import RankTrace

_ENDINGS = (".json", ".json.gz", ".zip", ".gz", ".sqlite")
_OURS = tuple(
    kind.suffix for kind in KINDS if kind is not TRACE
)  # whose ending traces of PyTorch have, too
_MOST = 4096
"""Files of a folder."""


@dataclass(frozen=True, kw_only=True)
class TraceOptions(Options):
    """One call of ``stash trace``."""

    files: tuple[str, ...] = argument(
        "FILE...",
        "Traces (.json, .json.gz, .zip), Nsight Systems' .sqlite, or folders of them.",
        many=True,
    )
    whole: bool = flag("Take all of a trace as one step.")
    comm_kernel: tuple[str, ...] = option(
        "REGEX", "Count kernels whose names match as communication; repeatable.", many=True
    )
    against: str | None = option("FILE", "Hold the traces against this profile of the same job.")
    instance: str | None = option(
        "NAME", "Say in dollars what would be saved on machines of this type."
    )
    flight_recorder: bool = flag(
        "Read dumps of PyTorch's flight recorder, one a rank, instead of traces."
    )
    output: Path | None = option("FILE", "Save the answer as *.trace.json.", Path, "-o", "--output")
    json: bool = json_flag()
    markdown: bool = markdown_flag()

    def check(self) -> None:
        check_one_format(self)
        others = self.list_given("whole", "comm_kernel", "instance", "output", "against")
        if self.flight_recorder and others:
            raise UserError(f"{others[0]} does not go with --flight-recorder; leave one out")


def trace(options: TraceOptions) -> None:
    """Read profiler traces: what exchange and waiting cost, which rank is late.

    Examples:
      stash trace traces/
      stash trace rank0.json.gz --whole --json
      stash trace report.sqlite
      stash trace traces/ --against train.stash.json -o train.trace.json
      stash trace dumps/ --flight-recorder
    """
    require_package("msgspec", "reading traces")
    if options.flight_recorder:
        _flight(options)
        return
    from stash.core.garbage import no_garbage
    from stash.core.trace_records import FILE
    from stash.trace.page import document, page

    target = None if options.output is None else output_file(options.output, "", TRACE.suffix)
    with no_garbage():
        found = read_job(options.files, options.whole, options.comm_kernel)
        if options.against is not None:
            from stash.analysis.attribution import attribute
            from stash.store.storing import profile_of
            from stash.trace.cross_check import cross_check

            breakdown = attribute(profile_of(options.against)[0], options.against)
            found = found.model_copy(
                update={
                    "against": Path(options.against).name,
                    "checks": cross_check(found, breakdown),
                }
            )
        if options.instance is not None:
            found = _priced(found, options.instance)
    print_output(document(found) if options.json else page(found), options.markdown)
    if target is not None:
        FILE.save(found, target)
        print_written(target, options.json)


def _priced(found: Trace, instance: str) -> Trace:
    """With what each supposition would save in a day."""
    from stash.catalog.layers import load as load_catalog

    catalog = load_catalog()
    whole = found.nodes if len(found.ranks) == found.world_size else None
    machines = whole or -(-found.world_size // catalog.instance(instance).devices)
    price = catalog.on_demand_price(instance, machines)
    suppositions = tuple(
        each.model_copy(
            update={
                "saved_dollars_per_day": 24
                * price.dollars_per_hour
                * (1 - each.step_seconds / found.step_seconds)
            }
        )
        for each in found.suppositions
    )
    return found.model_copy(update={"price": price, "suppositions": suppositions})


def read_job(words: Sequence[str], whole: bool = False, more: Sequence[str] = ()) -> Trace:
    """What the traces of these files and folders say; raises UserError."""
    from stash.trace.answer import trace_record
    from stash.trace.meetings import job_times
    from stash.trace.step_parts import rank_times

    traces, warnings = _ranks_of(words)
    times = {rank: rank_times(trace, whole, more) for rank, trace in traces.items()}
    return trace_record(job_times(times), _title(words), warnings)


def _flight(options: TraceOptions) -> None:
    from stash.trace import flight

    paths = [path for path, _ in _paths(options.files, any_name=True)]
    dumps: dict[int, dict[str, Any]] = {}
    for path in paths:
        dump = flight.read_dump(path)
        rank = flight.rank_of(path, dump)
        if rank in dumps:
            raise UserError(f"{path} is a second dump of rank {rank}; name one file a rank")
        dumps[rank] = dump
    found = flight.account_dumps(dumps)
    title = _title(options.files)
    shown = flight.document(found) if options.json else flight.page(found, title)
    print_output(shown, options.markdown)


def _title(words: Sequence[str]) -> str:
    return printable_line(join_names([Path(word).name for word in words], 3) or words[0], 100)


def _ranks_of(words: Sequence[str]) -> tuple[dict[int, RankTrace], list[str]]:
    """The traces by rank, and what is to be said of the files; raises UserError."""
    from stash.trace import nsight
    from stash.trace.reader import read_trace

    traces: list[RankTrace] = []
    warnings: list[str] = []
    for path, is_named in _paths(words):
        try:
            traces += nsight.read_report(path) if nsight.is_report(path) else [read_trace(path)]
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from None
        except UserError as error:
            if is_named:
                raise
            warnings.append(f"Left out: {error}.")
    if not traces:
        raise UserError(
            f"there is no trace in {join_names(list(words))}: "
            f"{join_names(warnings, 2) or 'no file ends in .json or .sqlite'}"
        )
    worlds = {trace.world for trace in traces if trace.world is not None}
    if len(worlds) > 1:
        counts = join_names([str(world) for world in sorted(worlds)])
        raise UserError(
            f"these are traces of different jobs: of {counts} ranks; name the files of one job"
        )
    if any(trace.rank is None for trace in traces):
        if len(traces) > 1:
            warnings.append(
                "Some traces do not say their rank: ranks are numbered in the order of files, and of devices."
            )
        return dict(enumerate(traces)), warnings
    found: dict[int, RankTrace] = {}
    for trace in traces:
        assert trace.rank is not None
        if trace.rank in found:
            raise UserError(
                f"{found[trace.rank].file} and {trace.file} are both of rank {trace.rank}; name one file a rank"
            )
        found[trace.rank] = trace
    return dict(sorted(found.items())), warnings


def _paths(words: Sequence[str], any_name: bool = False) -> Iterator[tuple[Path, bool]]:
    """Files, and whether each was named itself; dumps may be called anything. UserError."""
    for word in words:
        path = Path(word)
        if not path.exists():
            raise UserError(
                f"there is no file {word}; name traces, or a folder of them, like `stash trace traces/`"
            )
        if not path.is_dir():
            yield path, True
            continue
        there = sorted(each for each in path.rglob("*") if each.is_file())[:_MOST]
        chosen = [
            each
            for each in there
            if any_name or (each.name.endswith(_ENDINGS) and not each.name.endswith(_OURS))
        ]
        if not chosen:
            names = join_names([each.name for each in there], 5) or "nothing"
            raise UserError(
                f"there is no trace in {word}: traces end in .json, .json.gz, .zip or .sqlite; there is {names}"
            )
        yield from ((each, False) for each in chosen)
