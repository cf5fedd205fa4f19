"""``stash lab``, of ``testbed``, ``dataset`` and ``zoo``: parse, call the lab, show."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from stash.core import parsers
from stash.core.errors import UserError
from stash.core.interrupts import REQUESTS, interrupted_by
from stash.core.printable import printable_line
from stash.core.units import format_bytes, format_seconds
from stash.lab.testbed.bed import Started, Testbed, check_machine, list_leftovers, sweep
from stash.lab.testbed.topology import MAX_NODES
from stash.lab.zoo.registry import WORKLOADS
from stash.ui.charts.chart import Grid
from stash.ui.commands import App
from stash.ui.options import Options, argument, flag, option, quiet_flag
from stash.ui.page import Chapter, Page
from stash.ui.terminal import list_console, print_page

app = App(no_args_is_help=True)
testbed_app, dataset_app = App(no_args_is_help=True), App(no_args_is_help=True)
app.add_typer(testbed_app, name="testbed")
app.add_typer(dataset_app, name="dataset")
PORT = 29500
_WITH_RANKS = ("profile", "probe")


@app.callback()
def lab() -> None:
    """Set up experiments on this machine: workloads, data sets, an emulated cluster."""


@testbed_app.callback()
def testbed() -> None:
    """Emulate a cluster on this machine, with network namespaces as hosts."""


@dataclass(frozen=True, kw_only=True)
class TestbedOptions(Options):
    """One call of ``stash lab testbed run``."""

    command: tuple[str, ...] = argument("COMMAND…", "The command to run on every node.", many=True)
    nodes: int = option("N", "Emulate N hosts.", parsers.whole(1, MAX_NODES), default="2")
    devices: int = option(
        "N", "Start N ranks per host, for `stash profile`.", parsers.whole(1), default="1"
    )
    network: float | None = option("RATE", 'Limit each host\'s uplink, like "1gbit".', parsers.rate)
    loopback: float | None = option("RATE", "Limit the rate between a host's ranks.", parsers.rate)
    disk: float | None = option(
        "RATE", 'Limit reads from the disk of this folder, like "100MB/s".', parsers.rate
    )
    dry_run: bool = flag("Print the commands without running them.")


@testbed_app.command(context_settings={"allow_interspersed_args": False})
def run(options: TestbedOptions) -> None:
    """Run a command on every node of a testbed, then remove it.

    In the command, {node}, {nodes}, {address} (its own) and {head} (node 0) are filled in; its environment has
    STASH_NODE, STASH_TESTBED_NODES, STASH_TESTBED_ADDRESS and STASH_TESTBED_HEAD. `stash profile` and `stash probe`
    get their node rank and meeting point.

    Examples:
      stash lab testbed run --network 1gbit -- stash profile train.py
      stash lab testbed run --nodes 3 -- python work.py {head}
    """
    bed = Testbed(
        options.nodes,
        options.devices,
        interconnect=options.loopback,
        network=options.network,
        disk=options.disk,
    )

    def command_of(number: int) -> list[str]:
        return words(options.command, number, options.nodes, options.devices, bed.address)

    if options.dry_run:
        print("\n".join(step.describe() for step in bed.steps))
        for number in range(options.nodes):
            print(shlex.join(bed.command(command_of(number), number)))
        return
    try:
        with interrupted_by(*REQUESTS), bed:
            for link in bed.links:
                print(link.describe(), file=sys.stderr)
            code = _run_everywhere(bed, command_of)
    except KeyboardInterrupt:
        print("interrupted: the testbed was removed", file=sys.stderr)
        code = 130
    raise typer.Exit(code)


@testbed_app.command()
def doctor() -> None:
    """Check what this machine can emulate and what is missing."""
    found = check_machine()
    rows = tuple(("no" if missing else "yes", name, missing) for name, missing in found.items())
    grid = Grid("", ("what", ""), rows, frozenset({0, 1, 2}), prose=True)
    print_page(Page("What this machine can emulate", grids=(grid,)))
    needed = next(iter(found))
    if found[needed]:
        raise UserError(f"there can be no testbed on this machine: it lacks {needed}")
    print("This machine can run a testbed; rates are verified each time one is set up.")


@testbed_app.command()
def clean() -> None:
    """Remove what ended testbeds left behind."""
    removed = sweep()
    print(
        "\n".join(f"removed {name}" for name in removed) if removed else "nothing was left behind"
    )
    left = list_leftovers()
    if left:
        raise UserError(f"could not remove {', '.join(left)}; run with sudo")


_UTILIZATION = 0.5
"""The share of its peak that a GPU is taken to reach."""


@dataclass(frozen=True, kw_only=True)
class TestbedModelOptions(Options):
    """One call of ``stash lab testbed model``."""

    name: str = argument("WORKLOAD", "Train a workload of the zoo; see `stash lab zoo`.")
    gpu: str = option("NAME", "Use this GPU of the catalog.", default="V100")


@testbed_app.command()
def model(options: TestbedModelOptions) -> None:
    """Print a zoo model on a GPU of the catalog, as YAML.

    `python -m stash.lab.testbed.train_emulated --model FILE` trains it.
    """
    from stash.catalog.layers import load
    from stash.catalog.machines import find_variants, peak_rates
    from stash.lab.testbed.emulation import dump
    from stash.lab.testbed.generate import emulate_workload

    rates = peak_rates(find_variants(options.gpu, load()), "fp32")
    made = emulate_workload(
        options.name,
        rates.flops_per_second,
        rates.memory_bytes_per_second,
        efficiency=_UTILIZATION,
    )
    print(f"# {options.name} on {rates.about}\n# {_UTILIZATION:.0%} of the peak reached")
    print(dump(made), end="")


def words(command: Sequence[str], node: int, nodes: int, devices: int, address: Any) -> list[str]:
    """The command for one node: placeholders filled in, and ``stash`` given its node rank if it has none yet."""
    known = {
        "{node}": str(node),
        "{nodes}": str(nodes),
        "{address}": address(node),
        "{head}": address(0),
    }
    filled = []
    for word in command:
        for name, value in known.items():
            word = word.replace(name, value)  # noqa: PLW2901
        filled.append(word)
    at = 0
    if Path(filled[0]).name == "stash" and filled[1:2] and filled[1] in _WITH_RANKS:
        at = 2
    elif filled[1:3] == ["-m", "stash"] and filled[3:4] and filled[3] in _WITH_RANKS:
        at = 4
    if not at:
        return filled
    place = {
        "--nnodes": str(nodes),
        "--node-rank": str(node),
        "--rdzv-endpoint": f"{address(0)}:{PORT}",
        "--nproc-per-node": str(devices),
    }
    given = {word.partition("=")[0] for word in filled[at:]}
    extra = [part for flag, value in place.items() if flag not in given for part in (flag, value)]
    return [*filled[:at], *(extra if nodes > 1 else extra[-2:]), *filled[at:]]


def _run_everywhere(bed: Testbed, command: Any) -> int:
    """Show what all nodes print, line by line; the first exit status that is not 0, or 0."""
    started = bed.run_all(command, pipe=True)
    threads = [
        threading.Thread(target=_echo, args=(process, bed.nodes > 1), daemon=True)
        for process in started
    ]
    for thread in threads:
        thread.start()
    codes = [process.wait() for process in started]
    for thread in threads:
        thread.join(timeout=5)
    worst = next((code for code in codes if code), 0)
    return 128 - worst if worst < 0 else worst


def _echo(process: Started, several: bool) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        text = line.decode(errors="replace")
        sys.stdout.write(f"[{process.node}] {text}" if several else text)
        sys.stdout.flush()


_GROUPS = {
    "paper": "The models of the Stash paper",
    "depth": "The same of other depths",
    "more": "Other models",
}


@app.command()
def zoo() -> None:
    """List the workloads that come with Stash.

    Each is ordinary training code: use one to measure a machine if you have no script.

    Examples:
      stash profile --workload resnet18 --data DIR
      stash lab dataset make images DIR
    """
    groups = (
        Chapter(group, title, grids=(_models(group),), brief=True)
        for group, title in _GROUPS.items()
    )
    footer = "Gradients are in float32; the batch is per device."
    print_page(Page("Workloads that come with Stash", chapters=tuple(groups), footer=footer))


def _models(group: str) -> Grid:
    """The workloads of one group; names are filled up to one width, so that the groups line up."""
    rows = tuple(
        (
            item.name.ljust(18),
            item.kind,
            f"{item.parameters / 1e6:.1f} M".rjust(7),
            format_bytes(item.gradient_bytes),
            str(item.batch),
            item.about,
        )
        for item in WORKLOADS.values()
        if item.group == group
    )
    head = ("data", "params", "grads", "batch", "what it is")
    return Grid("", head, rows, frozenset({0, 1, 5}), first="name", prose=True)


@dataset_app.callback()
def dataset() -> None:
    """Make data sets that read like real ones."""


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(Options):
    """One call of ``stash lab dataset make``."""

    kind: str = argument("KIND", "images or text.")
    path: Path = argument("PATH", "A new or empty folder.", Path)
    count: int | None = option("N", "Make N samples (default: set by the kind).", parsers.whole(1))
    quiet: bool = quiet_flag()


@dataset_app.command()
def make(options: DatasetOptions) -> None:
    """Make a data set.

      images: JPEG files of 110 kB on average in a folder per class, like ImageNet.
      text: token ids in memory-mapped files, 1024 to a sample.

    Examples:
      stash lab dataset make images /data/images --count 20000
      stash lab dataset make text /data/text --count 100000
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from stash.lab.zoo.datasets import make_dataset
    from stash.ui.terminal import progress_console

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = progress_console(options.quiet)
    is_hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
        task = bar.add_task(f"making {options.kind}", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        made = make_dataset(options.kind, options.path, options.count, show)
    how = "there already" if made.seconds is None else f"made in {format_seconds(made.seconds)}"
    line = f"{made.path}: {made.count} samples of {made.kind}, {format_bytes(made.bytes)}, {how}"
    list_console().print(Text(printable_line(line)), soft_wrap=True)
