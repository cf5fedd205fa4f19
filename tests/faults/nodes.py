"""One job on several emulated hosts, and what goes wrong between them: the program of the cases on networks.

``python nodes.py --hosts N --profiled P --after ROUNDS --do "unplug 1; wait 20; plug 1" --elsewhere FOLDER -- WORDS``
starts ``WORDS`` on the first P of N hosts, waits until node 0 has shown so many rounds, does what is to be done,
waits for all to end, and prints what each said and how it ended. Its status is that of the first host left.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from stash.lab.testbed.bed import Started, Testbed
from stash.lab.testbed.topology import MARK

PORT = 29577
LIMIT = 300.0
STRANGER = Path(__file__).with_name("stranger.py")


@dataclass
class Scene:
    """The hosts, the job on each, and who was there besides."""

    bed: Testbed
    nodes: list[Started]
    proof: Path
    strangers: list[Started]

    def unplug(self, node):
        """Its link dies."""
        self.bed.unplug(int(node))

    def plug(self, node):
        """Its link works again."""
        self.bed.plug(int(node))

    def kill(self, node):
        """It loses power."""
        self.bed.kill(int(node))

    def slow(self, node, rate):
        """Its link gets another rate."""
        self.bed.set_network(int(node), rate)

    def part(self, one, other):
        """Neither of two hosts hears the other any more; all others hear both."""
        for here, there in ((one, other), (other, one)):
            self._ip("ip", here, "route", "add", "blackhole", f"{self.bed.address(int(there))}/32")

    def join(self, one, other):
        """They hear each other again."""
        for here, there in ((one, other), (other, one)):
            self._ip("ip", here, "route", "del", "blackhole", f"{self.bed.address(int(there))}/32")

    def interrupt(self, node):
        """Ctrl-C there."""
        os.kill(self.nodes[int(node)].pid, signal.SIGINT)

    def wait(self, seconds):
        """Nothing, for a while."""
        time.sleep(float(seconds))

    def attack(self, node, name, seconds):
        """A stranger on that host speaks to every port that the job's hosts listen on, and to the meeting point."""
        self._send_stranger(
            node, name, seconds, [*self.listening(), f"{self.bed.address(0)}:{PORT}/tcp"]
        ).wait(LIMIT)

    def lurk(self, node, name, seconds):
        """The same from the first moment on, at the meeting point only."""
        self._send_stranger(node, name, seconds, [f"{self.bed.address(0)}:{PORT}/tcp"])

    def _send_stranger(self, node, name, seconds, targets):
        words = ["--attack", name, "--proof", str(self.proof), "--seconds", seconds, *targets]
        started = self.bed.run([sys.executable, str(STRANGER), *words], int(node))
        self.strangers.append(started)
        return started

    def listening(self):
        """Every port that the job's hosts listen on to the network, as HOST:PORT/KIND."""
        found = []
        for node in range(len(self.nodes)):
            shown = self._ip(
                "ss", node, "--no-header", "--listening", "--numeric", "--tcp", "--udp"
            ).splitlines()
            for kind, _, _, _, place, *_ in map(str.split, shown):
                address, _, port = place.rpartition(":")
                if not address.startswith("127."):
                    found.append(f"{self.bed.address(node)}:{port}/{kind}")
                    print(
                        f"node {node} listens on {place.replace(self.bed.address(node), 'its address')} {kind}"
                    )
        return list(dict.fromkeys(found))

    def _ip(self, program, node, *words):
        """A command in a host's network namespace."""
        enter = ("ip", "netns", "exec", self.bed.environment(int(node))[MARK])
        return subprocess.run(
            (*enter, program, *words), capture_output=True, text=True, check=True
        ).stdout

    def do(self, what):
        """One thing after the other: ``verb words; verb words``."""
        for verb, *words in filter(None, map(shlex.split, what.split(";"))):
            getattr(self, verb)(*words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--profiled", type=int, default=2)
    parser.add_argument("--at-once", default="", help="what is done before the job is started")
    parser.add_argument(
        "--after", type=int, default=2, help="rounds that node 0 has shown before --do"
    )
    parser.add_argument("--do", default="")
    parser.add_argument("--network", default="1gbit")
    parser.add_argument(
        "--elsewhere", type=Path, required=True, help="where other nodes' profiles go"
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="{node}, {nodes}, {head} and {output} are filled in",
    )
    args = parser.parse_args()
    with Testbed(args.hosts, network=args.network, verify=False) as bed:
        scene = Scene(bed, [], args.elsewhere / "proof", [])
        scene.do(args.at_once)
        for node in range(args.profiled):
            scene.nodes.append(bed.run(_words(args, bed, node), node))
        if _comes_to(scene, args.after):
            scene.do(args.do)
        codes = _ends(scene)
        print(f"the stranger's words were {'run' if scene.proof.exists() else 'not run'}")
    return next((code for code in codes if code is not None and code >= 0), 1)


def _words(args, bed, node):
    output = Path("run.stash.json") if node == 0 else args.elsewhere / f"node{node}.stash.json"
    known = {
        "node": node,
        "nodes": args.profiled,
        "head": f"{bed.address(0)}:{PORT}",
        "output": output,
    }
    return [word.format(**known) for word in args.command if word != "--"]


def _comes_to(scene, rounds):
    """Wait until node 0 has shown so many rounds; False if any node ended before."""
    deadline = time.monotonic() + LIMIT
    while scene.nodes[0].output.count("round ") < rounds:
        if any(node.poll() is not None for node in scene.nodes) or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _ends(scene):
    """Each node's exit status, None of one that was killed or never ended; all they said is printed."""
    deadline, codes = time.monotonic() + LIMIT, []
    for started in (*scene.nodes, *scene.strangers):
        try:
            codes.append(started.wait(max(1.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(None)
    for number, (started, code) in enumerate(
        zip((*scene.nodes, *scene.strangers), codes, strict=True)
    ):
        print("\n".join(f"[{number}] {line}" for line in started.output.splitlines()))
        print(f"host {number} ended with {code if code is not None else 'nothing: it still ran'}")
    return codes[: len(scene.nodes)]


if __name__ == "__main__":
    sys.exit(main())
