"""``stash testbed``: runs commands on an emulated cluster, says what can be emulated, sweeps leftovers.

Parses what is asked for, calls ``stash.lab.testbed`` and shows what the hosts print.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stash.base.errors import UserError
from stash.base.interrupts import interrupted_by
from stash.cli.options import App, flag, option, positive

if TYPE_CHECKING:
    from stash.keep.catalog.peak import Peak
    from stash.lab.testbed import Started, Testbed

app = App(no_args_is_help=True)
PORT = 29500
_WITH_RANKS = ("profile", "probe")


@app.callback()
def testbed() -> None:
    """An emulated cluster on this machine: namespaces as hosts, links with set rates."""


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="What to run on every node.")],
    nodes: Annotated[int, option("N", "Hosts.")] = 2,
    devices: Annotated[int, option("N", "Ranks per host, for `stash profile`.")] = 1,
    network: Annotated[str | None, option("RATE", 'Each host\'s uplink, like "1gbit".')] = None,
    interconnect: Annotated[str | None, option("RATE", "Each host's loopback.")] = None,
    disk: Annotated[str | None, option("RATE", 'Reads from disk, like "100MB/s".')] = None,
    disk_path: Annotated[Path, option("PATH", "A folder on that disk.")] = Path("."),
    cpus: Annotated[float | None, option("N", "Each host's share of the cores.")] = None,
    node: Annotated[list[str] | None, option("K:NAME=VALUE,…", "A host that differs; repeatable.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print the commands that would be run, and stop.")] = False,
) -> None:
    """Run a command on every node of a testbed, and remove the testbed when all have ended.

    In the command, {node}, {nodes}, {address} (its own) and {head} (node 0) are
    filled in; its environment has STASH_NODE, STASH_TESTBED_NODES,
    STASH_TESTBED_ADDRESS and STASH_TESTBED_HEAD. `stash profile` and `stash probe`
    are given their node rank and meeting point.

    \b
    stash testbed run --network 1gbit -- stash profile train.py
    stash testbed run --nodes 3 --node 1:network=100mbit -- python work.py {head}
    """
    from stash.lab.testbed import Testbed
    from stash.lab.testbed.topology import Wish, parse_override

    overrides: dict[int, Mapping[str, Wish]] = dict(map(parse_override, node or []))
    wishes: dict[str, Any] = {"interconnect": interconnect, "network": network, "disk": disk, "cpus": cpus}
    bed = Testbed(nodes, devices, overrides=overrides, disk_path=disk_path, **wishes)
    if dry_run:
        print("\n".join(step.describe() for step in bed.steps))
        for number in range(nodes):
            from shlex import join

            print(join(bed.command(words(command, number, nodes, devices, bed.address), number)))
        return
    try:
        with interrupted_by(signal.SIGTERM, signal.SIGHUP), bed:
            _describe_links(bed)
            code = _run_everywhere(bed, lambda number: words(command, number, nodes, devices, bed.address))
    except KeyboardInterrupt:
        print("interrupted: the testbed was removed", file=sys.stderr)
        code = 130
    raise typer.Exit(code)


@app.command()
def doctor() -> None:
    """Say what this machine can emulate and what is missing; tries everything, leaves nothing."""
    from rich.console import Console
    from rich.table import Table

    from stash.lab.testbed.doctor import examine

    checks = examine()
    table = Table(box=None, show_header=False)
    for check in checks:
        table.add_row("[green]yes[/]" if check.ok else "[red]no[/]", check.name, check.detail)
    Console().print(table)
    missing = [check.name for check in checks if check.needed and not check.ok]
    if missing:
        raise UserError(f"there can be no testbed on this machine: it lacks {', '.join(missing)}")
    print("This machine can run a testbed; rates are verified each time one is set up.")


@app.command()
def clean() -> None:
    """Remove what testbeds left behind whose process is gone; those in use are not touched."""
    from stash.lab.testbed.sweep import elsewhere, leftovers, sweep

    removed = sweep()
    print("\n".join(f"removed {name}" for name in removed) if removed else "nothing was left behind")
    if others := elsewhere():
        print(
            f"left alone {', '.join(others)}: only in the container (PID namespace) that made them can be seen "
            "whether they are in use; run `stash testbed clean` there, or remove them with `ip netns del NAME`"
        )
    left = leftovers()
    if left:
        raise UserError(f"could not remove {', '.join(left)}; run with sudo")


@app.command()
def model(
    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A workload of the zoo; see `stash zoo`.")],
    gpu: Annotated[str | None, option("NAME", 'A GPU of the catalog, like "V100".')] = None,
    precision: Annotated[str, option("P", "fp32, or fp16 (autocast, tensor cores).")] = "fp32",
    tflops: Annotated[float | None, option("N", "The GPU's peak, 10^12 operations a second.")] = None,
    memory: Annotated[str | None, option("RATE", 'Its memory\'s rate, like "900GB/s".')] = None,
    efficiency: Annotated[float, option("F", "The part of the peak that is reached.")] = 0.5,
    speed: Annotated[float | None, option("N", "… or the samples a second that it reaches.")] = None,
    batch: Annotated[int | None, option("N", "Samples; else the workload's.", least=1)] = None,
    size_scale: Annotated[float, option("F", "All bytes times this (links alike).")] = 1.0,
    time_scale: Annotated[float, option("F", "All times times this.")] = 1.0,
) -> None:
    """Print the YAML of a zoo model on a GPU, for `python -m stash.lab.testbed.train --model FILE`.

    The GPU is one of the catalog (--gpu), or any other by its peak rates (--tflops and --memory).
    """
    from stash.keep.catalog.peak import VALUE_BYTES
    from stash.lab.testbed.emulation import dump
    from stash.lab.testbed.generate import emulate
    from stash.lab.zoo.registry import workload

    if not all(0 < scale < float("inf") for scale in (size_scale, time_scale)):
        raise UserError("--size-scale and --time-scale must be more than 0")
    if precision not in VALUE_BYTES:
        raise UserError(f"--precision {precision}: it is {' or '.join(VALUE_BYTES)}")
    peak = _peak(gpu, precision, tflops, memory)
    made = emulate(
        name, peak.flops_per_second, peak.memory_bytes_per_second, batch, efficiency,
        value_bytes=VALUE_BYTES[precision],
    )  # fmt: skip
    reached = f"{efficiency:.0%} of the peak reached"
    if speed is not None:
        made = made.scaled(time=(batch or workload(name).batch) / positive("--speed", speed) / made.compute_seconds)
        reached = f"layers' shares of the step by those rates, and {speed:g} samples a second"
    print(f"# {name} on {peak.about}\n# {reached}")
    print(dump(made.scaled(size_scale, time_scale)), end="")


def _peak(gpu: str | None, precision: str, tflops: float | None, memory: str | None) -> Peak:
    """The catalog's rates of a GPU, or those given; raises UserError for neither, and for both."""
    from stash.base.words.units import parse_rate
    from stash.keep.catalog.peak import Peak, peak, variants

    if gpu is not None:
        if tflops is not None or memory is not None:
            raise UserError(f"--gpu {gpu} says the peak rates already; leave out --tflops and --memory, or --gpu")
        from stash.keep import catalog

        return peak(variants(gpu, catalog.load()), precision)
    if tflops is None or memory is None:
        raise UserError('say which GPU with --gpu NAME, like "--gpu V100", or give both --tflops and --memory')
    return Peak(tflops * 1e12, parse_rate(memory), f"a GPU of {tflops:g} TFLOP/s and {memory}")


def words(command: Sequence[str], node: int, nodes: int, devices: int, address: Any) -> list[str]:
    """The command for one node: placeholders filled in; our own told its place unless it says so itself."""
    known = {"{node}": str(node), "{nodes}": str(nodes), "{address}": address(node), "{head}": address(0)}
    filled = []
    for word in command:
        for name, value in known.items():
            word = word.replace(name, value)  # noqa: PLW2901
        filled.append(word)
    at = _ours_at(filled)
    if at is None:
        return filled
    place = {"--nnodes": str(nodes), "--node-rank": str(node), "--rdzv-endpoint": f"{address(0)}:{PORT}"}
    place["--nproc-per-node"] = str(devices)
    given = {word.partition("=")[0] for word in filled[at:]}
    extra = [part for flag, value in place.items() if flag not in given for part in (flag, value)]
    return [*filled[:at], *(extra if nodes > 1 else extra[-2:]), *filled[at:]]


def _ours_at(command: Sequence[str]) -> int | None:
    """Where the options of `stash profile` or `stash probe` begin; None if the command is another."""
    if len(command) > 1 and Path(command[0]).name == "stash" and command[1] in _WITH_RANKS:
        return 2
    if len(command) > 3 and command[1:3] == ["-m", "stash"] and command[3] in _WITH_RANKS:
        return 4
    return None


def _describe_links(bed: Testbed) -> None:
    for link in bed.links:
        print(link.describe(), file=sys.stderr)


def _run_everywhere(bed: Testbed, command: Any) -> int:
    """Show what all nodes print, line by line; the first exit status that is not 0, or 0."""
    started = bed.run_all(command, pipe=True)
    threads = [threading.Thread(target=_echo, args=(process, bed.nodes > 1), daemon=True) for process in started]
    for thread in threads:
        thread.start()
    codes = [process.wait() for process in started]
    for thread in threads:
        thread.join(timeout=5)
    worst = next((code for code in codes if code), 0)
    return 128 - worst if worst < 0 else worst


def _echo(process: Started, several: bool) -> None:
    assert process.popen.stdout is not None
    for line in process.popen.stdout:
        text = line.decode(errors="replace")
        sys.stdout.write(f"[{process.node}] {text}" if several else text)
        sys.stdout.flush()
