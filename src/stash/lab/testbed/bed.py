"""``Testbed``: an emulated cluster from set-up to removal; commands on its nodes; leftovers of those that died."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

from stash.core.end_tree import end_at_once, end_tree
from stash.core.errors import StashError, UserError
from stash.core.interrupts import postpone_requests
from stash.core.units import format_bytes, parse_rate
from stash.lab.testbed import wiring
from stash.lab.testbed.execute import Executor, require_programs, run_command
from stash.lab.testbed.topology import (
    MARK,
    PREFIX,
    Step,
    Wish,
    is_abandoned,
    make_topology,
    next_owner,
)
from stash.lab.testbed.verify import ShapedLink, verify_disks, verify_links


class Started(subprocess.Popen[bytes]):
    """A command running on a node, in a process group of its own; standard output and error go to one unnamed file.

    Knows that group alone; where it runs was decided by whoever started it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        node: int,
        environment: Mapping[str, str],
        folder: Path | None,
        pipe: bool = False,
    ) -> None:
        self.node = node
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        super().__init__(
            argv,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        """All it printed so far, on standard output and standard error; empty if a pipe was asked for."""
        size = os.fstat(self._file.fileno()).st_size
        return os.pread(self._file.fileno(), size, 0).decode(errors="replace")

    def send_signal(self, sig: int) -> None:
        """A signal to the process and to all of its group; nothing if it ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, sig)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        super().__exit__(kind, error, trace)


# What testbeds left behind whose process is gone: only names made by ``topology.py`` whose owner is dead.

NAMESPACES = Path("/run/netns")


def list_leftovers() -> tuple[str, ...]:
    """What ``sweep`` would remove."""
    return (*_namespaces(), *map(str, _groups()))


def sweep() -> tuple[str, ...]:
    """Remove all leftovers, ending the processes inside them; returns what was removed."""
    end_at_once(_orphans)
    removed = []
    for name in _namespaces():
        end_at_once(partial(_members, name))
        if run_command(("ip", "netns", "del", name)).returncode == 0:
            removed.append(name)
    for folder in _groups():
        with contextlib.suppress(OSError):
            end_at_once(partial(_pids, folder / "cgroup.procs"))
            deadline = time.monotonic() + 2.0
            while folder.is_dir() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):  # killed processes take a moment to go
                    folder.rmdir()
                    removed.append(str(folder))
                time.sleep(0.05)
    return tuple(removed)


def _namespaces() -> list[str]:
    return sorted(path.name for path in NAMESPACES.glob(f"{PREFIX}*") if is_abandoned(path.name))


def _groups() -> Iterator[Path]:
    limits = wiring.find_limits()
    for path in sorted(Path(limits.root).glob(f"{PREFIX}*")) if limits is not None else ():
        if path.is_dir() and is_abandoned(path.name):
            yield path


def _orphans() -> list[int]:
    """Processes started on a testbed whose owner is gone, recognised by their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for variable in path.read_bytes().split(b"\0"):
                name, _, value = variable.decode(errors="replace").partition("=")
                if name == MARK and is_abandoned(value):
                    found.add(int(path.parts[2]))
    return sorted(found - {os.getpid()})


def _members(namespace: str) -> list[int]:
    """Processes in a network namespace; none where there is no such namespace."""
    return [int(pid) for pid in run_command(("ip", "netns", "pids", namespace)).stdout.split()]


def _pids(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()]


RANK_BYTES = 300e6
"""Memory of one rank that does nothing but train an emulated model: mostly PyTorch itself."""
_ENTER = 'echo $$ > "$1/cgroup.procs" || exit 125; shift; exec "$@"'
_GRACE = 2.0


class Testbed:
    """A cluster of emulated hosts; use it in a ``with`` statement.

    ``network`` is every host's uplink (each direction), ``interconnect`` its loopback (shared by all its ranks),
    ``disk`` the reading rate of the device under ``disk_path``; rates as "1gbit" or "100MB/s", None for no limit.
    ``overrides={1: {"network": "100mbit"}}`` makes a host differ. ``devices`` is the number of ranks each host is
    meant for. Raises UserError for a wish that makes no sense, and on entry if this machine cannot fulfil it.
    """

    __test__ = False  # a name that pytest would collect

    def __init__(
        self,
        nodes: int = 2,
        devices: int = 1,
        *,
        interconnect: Wish = None,
        network: Wish = None,
        disk: Wish = None,
        overrides: Mapping[int, Mapping[str, Wish]] | None = None,
        disk_path: str | Path = ".",
        verify: bool = True,
    ) -> None:
        wishes = {"interconnect": interconnect, "network": network, "disk": disk}
        self.topology = make_topology(nodes, devices, overrides=overrides, **wishes)
        self.owner = next_owner()
        self.links: tuple[ShapedLink, ...] = ()
        """Every shaped link, and every limited disk, as verified after set-up."""
        self._verify = verify
        self._disk_path = Path(disk_path)
        self._limits = (
            wiring.find_limits() if any(host.disk for host in self.topology.hosts) else None
        )
        self._executor = Executor()
        self._started: list[Started] = []

    @property
    def nodes(self) -> int:
        """How many hosts."""
        return len(self.topology.hosts)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What setting up runs, in order; raises UserError where the machine lacks a controller."""
        device = (
            wiring.device_of(self._disk_path) if any(h.disk for h in self.topology.hosts) else None
        )
        return wiring.set_up(self.topology, self.owner, self._limits, device)

    def __enter__(self) -> Testbed:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Sweep what dead testbeds left, set up, and verify links and disks; leaves nothing behind if that fails."""
        require_programs()
        import psutil

        ranks = self.nodes * self.topology.devices
        free = psutil.virtual_memory().available
        if ranks * RANK_BYTES > free:
            raise UserError(
                f"{ranks} ranks need about {format_bytes(ranks * RANK_BYTES)} of memory and {format_bytes(free)} are "
                f"free; use {int(free // RANK_BYTES)} or fewer"
            )
        try:
            sweep()
            self._executor.do(self.steps)
            if self._verify:
                self.links = verify_links(self.topology, self.owner)
                self.links += verify_disks(self.topology, self._disk_path, self.command)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything that runs on the hosts and remove them; harmless when done already."""
        with (
            postpone_requests(),
            contextlib.ExitStack() as last,
        ):  # whatever fails, what follows is done, too
            last.callback(self._executor.undo)
            end_tree(
                lambda: [pid for node in range(self.nodes) for pid in self._running(node)], _GRACE
            )
            for process in self._started:
                process.kill()
                process.wait()

    def address(self, node: int) -> str:
        """A node's address, valid on every node of this testbed and nowhere else."""
        return wiring.address(self._check_node(node))

    def interface(self, node: int) -> str:
        """The name of a node's network interface."""
        return wiring.interface(self._check_node(node))

    def environment(self, node: int) -> dict[str, str]:
        """The variables a command on that node gets besides this process's own."""
        name = self.interface(node)
        cores = len(os.sched_getaffinity(0)) // (self.nodes * self.topology.devices)
        return {
            # Hosts share the cores: threads that spin while they wait would slow each other's transfers.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores))),
            "STASH_NODE": str(node),
            MARK: self.owner.host(node),
            "STASH_TESTBED_NODES": str(self.nodes),
            "STASH_TESTBED_ADDRESS": self.address(node),
            "STASH_TESTBED_HEAD": self.address(0),
            "GLOO_SOCKET_IFNAME": name,
            "NCCL_SOCKET_IFNAME": name,
            "TP_SOCKET_IFNAME": name,
        }

    def command(self, argv: Sequence[str], node: int = 0) -> tuple[str, ...]:
        """What runs ``argv`` on a node: through its control group into its namespace."""
        host = self.owner.host(self._check_node(node))
        limits = self._limits
        is_limited = limits is not None and self.topology.hosts[node].disk is not None
        enter = (
            ("sh", "-c", _ENTER, "stash-tb", limits.group(host))
            if limits is not None and is_limited
            else ()
        )
        return (*enter, "nsenter", f"--net=/run/netns/{host}", "--", *map(str, argv))

    def run(
        self,
        argv: Sequence[str],
        node: int = 0,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pipe: bool = False,
    ) -> Started:
        """Start a command on a node; its output is kept, or left in ``stdout`` if ``pipe``."""
        variables = {**os.environ, **self.environment(node), **(env or {})}
        folder = Path(cwd) if cwd is not None else None
        # Not held against Ctrl-C: the command would inherit the blocked signals. What escapes the list by an
        # interruption here is still found in its namespace by ``close``.
        process = Started(self.command(argv, node), node, variables, folder, pipe)
        self._started.append(process)
        return process

    def run_all(
        self,
        argv_for_node: Callable[[int], Sequence[str]],
        env: Mapping[str, str] | None = None,
        pipe: bool = False,
    ) -> list[Started]:
        """Start ``argv_for_node(k)`` on every node k at once."""
        return [self.run(argv_for_node(node), node, env, pipe=pipe) for node in range(self.nodes)]

    def set_network(self, node: int, rate: str | float) -> None:
        """Reshape a host's uplink while things run: a link that degrades, or recovers. Not verified."""
        number = parse_rate(rate) if isinstance(rate, str) else float(rate)
        host = replace(
            self.topology.hosts[self._check_node(node)], network=number, interconnect=None
        )
        self._executor.do(wiring.shaping(self.owner, node, host))

    def unplug(self, node: int) -> None:
        """A host's link dies: nothing comes in or goes out any more."""
        self._executor.do([wiring.plug(self.owner, self._check_node(node), connected=False)])

    def plug(self, node: int) -> None:
        """A host's dead link works again."""
        self._executor.do([wiring.plug(self.owner, self._check_node(node), connected=True)])

    def kill(self, node: int) -> None:
        """A host vanishes: its link goes down first, so that no peer is notified, then its processes are killed."""
        self.unplug(node)
        end_at_once(lambda: self._running(node))

    def _running(self, node: int) -> list[int]:
        return _members(self.owner.host(self._check_node(node)))

    def _check_node(self, node: int) -> int:
        if not 0 <= node < self.nodes:
            raise UserError(f"there is no node {node}: the nodes are 0 to {self.nodes - 1}")
        return node


_ABILITIES: tuple[tuple[str, dict[str, Wish]], ...] = (
    ("hosts and links", {"network": "1gbit", "interconnect": "1gbit"}),
    ("disk limits (for --disk)", {"disk": "100MB/s"}),
)


def check_machine() -> dict[str, str]:
    """What testbeds can emulate here, found out with one host each, and what is missing; without the first there is
    none."""
    found = {}
    for name, limits in _ABILITIES:
        try:
            with Testbed(1, verify=False, **limits):  # type: ignore[arg-type]
                found[name] = ""
        except StashError as error:
            found[name] = str(error)
    return found


def why_no_testbed() -> str | None:
    """Why there can be no testbed here, in one sentence; None if there can."""
    missing = next(iter(check_machine().values()))
    return f"no testbed on this machine: {missing}" if missing else None
