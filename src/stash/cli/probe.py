"""``stash probe``: what a machine is and what its links really carry, beside what its type should have.

Parses, calls the library, renders. Progress goes to stderr, the report or the JSON to stdout.
"""

from __future__ import annotations

import json as jsonlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.output import output_file
from stash.cli.ranks import Nnodes, NodeRank, NprocPerNode, RdzvEndpoint

if TYPE_CHECKING:
    from stash.base.records import Probe
    from stash.keep.catalog import Catalog
    from stash.measure.launch.request import Cluster

MEASURE = "What to measure"
_SAYS = {
    "copies": "copying in memory, to GPUs and between them",
    "reads": "reading files",
    "preparation": "preparing samples",
    "streams": "sending from node to node",
    "exchanges": "all-reducing small and large messages",
}


def probe(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A folder of data: its disk is measured.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The same, as an option.", rich_help_panel=MEASURE)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Samples to prepare: images, text, audio or clicks.",
            rich_help_panel=MEASURE,
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to measure at most.", rich_help_panel=MEASURE)
    ] = 45.0,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help=f"Only these: {', '.join(_SAYS)}.", rich_help_panel=MEASURE, show_default=False
        ),
    ] = None,
    no_measure: Annotated[
        bool, typer.Option("--no-measure", help="Only say what the machine is.", rich_help_panel=MEASURE)
    ] = False,
    instance: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The machine's type, if it cannot tell.", show_default=False),
    ] = None,
    no_metadata: Annotated[
        bool, typer.Option("--no-metadata", help="Do not ask the metadata service of the cloud this machine is in.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare with this type; else with its own.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where the probe goes; else named after the machine."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print probe, links and findings as JSON (docs/probe.md).")
    ] = False,
    nproc_per_node: NprocPerNode = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: RdzvEndpoint = None,
) -> None:
    """Find out what this machine really has: its links measured, beside what its type should have.

    Takes less than a minute, needs no privileges and no training job. Run it before training on a machine.

    [bold]Examples[/bold]

      stash probe /data/imagenet
      stash probe --against p3.8xlarge
      stash probe --only copies,exchanges --json
      stash probe --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29500
    """
    from stash.keep import catalog as facts

    known, folder, what = facts.load(), _folder(path, data), _parts(only, no_measure)
    for name in (instance, against):
        if name is not None:
            known.instance(name)  # an unknown name is refused before anything is measured
    if not 0 < budget < float("inf"):
        raise UserError(f"--budget {budget:g}: it must be a number of seconds above 0")
    target = output_file(output, _machine_name(), _suffix()) if output is not None or not no_measure else None
    if no_measure:
        found: Probe | None = _described(folder, instance, not no_metadata)
    else:
        from stash.measure.launch import probe as probing

        ranks = (nproc_per_node, nnodes, node_rank, rdzv_endpoint)
        with _progress() as say:
            found = probing.probe(
                _cluster(*ranks), budget=budget, data=folder, kind=kind, instance=instance, what=what, say=say,
                ask_metadata=not no_metadata,
            )  # fmt: skip
    if found is None:
        print("This node is done; the probe is written on node 0.", file=sys.stderr)
        return
    _finish(found, known, against, target, json)


def _folder(path: Path | None, data: Path | None) -> Path | None:
    if path is not None and data is not None and path != data:
        raise UserError(f"{path} and --data {data} are two folders; name one of them")
    folder = path if path is not None else data
    if folder is None or folder.is_dir():
        return folder
    if folder.name.endswith(_suffix()):
        raise UserError(f"{folder} is no folder of data; a saved probe is shown with `stash show {folder}`")
    raise UserError(f"there is no data folder {folder}; name one, or leave it out to measure the current one")


def _suffix() -> str:
    from stash.keep.artefact import PROBE_SUFFIX

    return PROBE_SUFFIX


def _parts(only: str | None, no_measure: bool) -> frozenset[str] | None:
    if only is None:
        return None
    if no_measure:
        raise UserError("--only and --no-measure exclude each other; use one of them")
    return frozenset(name.strip() for name in only.split(",") if name.strip())


def _machine_name() -> str:
    from socket import gethostname

    return gethostname().split(".", maxsplit=1)[0]


def _described(folder: Path | None, instance: str | None, ask_metadata: bool) -> Probe:
    from stash.base.records import Probe, now
    from stash.base.version import __version__
    from stash.measure.host.describe import describe

    began = time.monotonic()
    host = describe(folder, instance=instance, ask_metadata=ask_metadata)
    return Probe(
        stash_version=__version__,
        created=now(),
        hosts=(host,),
        budget_seconds=0.0,
        elapsed_seconds=time.monotonic() - began,
    )


def _cluster(nproc: int | None, nnodes: int | None, node_rank: int | None, endpoint: str | None) -> Cluster:
    from stash.measure.host.describe import count_gpus
    from stash.measure.launch.surroundings import cluster

    return cluster(True, nproc, nnodes, node_rank, endpoint, count_gpus(), len(os.sched_getaffinity(0)))


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being measured: one changing line on a terminal, a line each in a log; on stderr."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        print("probing …", file=sys.stderr)
        yield lambda part: print(f"  {_SAYS.get(part, part)}", file=sys.stderr, flush=True)
        return
    with console.status("probing") as status:
        yield lambda part: status.update(_SAYS.get(part, part))


def _finish(found: Probe, known: Catalog, against: str | None, target: Path | None, json: bool) -> None:
    """Show first: should saving fail, the measured minute is not lost."""
    from stash.keep.artefact import save

    try:
        print_probe(found, known, against, target, json)
    finally:
        if target is not None:
            save(found, target)
    if target is not None:
        note = f"Saved {target}; show it again with `stash show {shlex.quote(str(target))}`."
        print(note if json else f"\n{note}", file=sys.stderr if json else sys.stdout)


def print_probe(
    found: Probe, known: Catalog, against: str | None = None, saved: Path | None = None, json: bool = False
) -> None:
    """Print a probe as a report, or as the JSON of the contract."""
    from stash.derive.findings import read

    reading = read(found, known, against)
    if json:
        from stash.show.probe.contract import document

        print(jsonlib.dumps(document(found, reading), indent=1, ensure_ascii=False))
        return
    from stash.show.probe.terminal import render
    from stash.show.probe.view import view

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = view(found, reading, None if saved is None else shlex.quote(str(saved)))
    print(render(shown, shutil.get_terminal_size().columns, colour), end="")
