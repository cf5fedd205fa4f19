"""``stash probe``: what a machine is and what its links really carry, beside what its type should have.

Parses, measures, shows. Progress goes to stderr, the report or the JSON to stdout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.base.interrupts import REQUESTS, interrupted_by
from stash.base.platforms import require_linux
from stash.cli.options import flag, option, positive
from stash.cli.output import output_file, print_probe, show_then_save
from stash.cli.ranks import Nnodes, NodeRank, NprocPerNode, RdzvEndpoint, RdzvId, cluster
from stash.cli.storing import StoreOption, store_for_copies

if TYPE_CHECKING:
    from stash.base.records import Probe

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
    data: Annotated[Path | None, option("PATH", "The same, as an option.", panel=MEASURE)] = None,
    kind: Annotated[
        str | None, option("KIND", "Samples to prepare: images, text, audio or clicks.", panel=MEASURE)
    ] = None,
    budget: Annotated[float, option("SECONDS", "How long to measure at most.", panel=MEASURE)] = 45.0,
    only: Annotated[str | None, option("A,B,C", f"Only these: {', '.join(_SAYS)}.", panel=MEASURE)] = None,
    no_measure: Annotated[bool, flag("--no-measure", "Only say what the machine is.", panel=MEASURE)] = False,
    instance: Annotated[str | None, option("NAME", "The machine's type, if it cannot tell.")] = None,
    no_metadata: Annotated[
        bool, flag("--no-metadata", "Do not ask the metadata service of the cloud this machine is in.")
    ] = False,
    against: Annotated[str | None, option("NAME", "Compare with this type; else with its own.")] = None,
    output: Annotated[
        Path | None, option("FILE", "Where the probe goes; else named after the machine.", "-o", "--output")
    ] = None,
    store: StoreOption = None,
    json: Annotated[bool, flag("--json", "Print probe, links and findings as JSON (docs/probe.md).")] = False,
    nproc_per_node: NprocPerNode = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: RdzvEndpoint = None,
    rdzv_id: RdzvId = None,
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

    require_linux("stash probe")
    known, folder, what = facts.load(), _folder(path, data), _parts(only, no_measure)
    for name in (instance, against):
        if name is not None:
            known.instance(name)  # an unknown name is refused before anything is measured
    positive("--budget", budget, "a number of seconds above 0", finite=True)
    copies = store_for_copies(store)
    target = output_file(output, _machine_name(), _suffix()) if output is not None or not no_measure else None
    with _said_if_interrupted(), interrupted_by(*REQUESTS):  # as orderly as Ctrl-C, until the probe is saved
        if no_measure:
            found: Probe | None = _described(folder, instance, not no_metadata)
        else:
            from stash.measure.launch import probe as probing

            ranks = (nproc_per_node, nnodes, node_rank, rdzv_endpoint, rdzv_id)
            with _progress() as say:
                found = probing.probe(
                    cluster(*ranks), budget=budget, data=folder, kind=kind, instance=instance, what=what, say=say,
                    ask_metadata=not no_metadata,
                )  # fmt: skip
        if found is None:
            print("This node is done; the probe is written on node 0.", file=sys.stderr)
            return
        show = partial(print_probe, found, known, against, target, json)
        show_then_save(found, target, show, json, new=output is None, copies=copies)


@contextmanager
def _said_if_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: no probe was saved", file=sys.stderr)
        raise typer.Exit(130) from None


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


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being measured: one changing line on a terminal, a line each in a log; on stderr."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        print("probing …", file=sys.stderr)
        yield lambda part: print(f"  {_SAYS.get(part, part)}", file=sys.stderr, flush=True)
        return
    with console.status("probing") as status:
        yield lambda part: status.update(_SAYS.get(part, part))
