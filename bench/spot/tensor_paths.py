"""How much of a server's link the connections between workers and servers fill, one worker at a time or all at once.

Workers with nothing to compute exchange 2 MB with one server over links of 100 Mbit/s on the testbed, as fast as they
can: the link allows 6.25 updates a second, and a single worker, who sends or receives at any time, half of it.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace

from bench.spot.truth_jobs import mb2
from bench.table import show
from stash.lab.testbed.bed import Testbed
from stash.spot.train.ledger import DataLease, lease_tag
from stash.spot.train.server import ParameterShard, RunKeys, ShardServer
from stash.spot.train.worker import ServerLinks, Trainer

KEYS = RunKeys(b"of this benchmark", b"its leases")
SECONDS, FLEETS = 8.0, (1, 2, 3)
AT_ONCE = {"in turn": 1, "all at once": 16}


def serve(host: str, at_once: int) -> None:
    print(ShardServer(ParameterShard(mb2, 0, 1), host, KEYS, at_once).address[1], flush=True)
    threading.Event().wait()


def exchange(host: str, port: int, own: int) -> None:
    """Prints updates per second."""
    trainer = Trainer(mb2, 1, 8)
    name = f"worker{own}"
    links = ServerLinks([(host, port)], trainer.tensors, KEYS.run, name)
    _, gradients = trainer.gradients(DataLease(0, 8))
    began, count, start = time.monotonic(), 0, own * 10**7  # no two workers have the same samples
    while time.monotonic() - began < SECONDS:
        lease = DataLease(start, start + 8)
        links.push(replace(lease, tag=lease_tag(KEYS.leases, name, lease)), gradients)
        start, count = start + 16, count + 1
    print(count / (time.monotonic() - began), flush=True)


def measure(workers: int, at_once: int) -> float:
    """Updates per second of all of them."""
    with Testbed(1 + workers, verify=False, network="100mbit") as bed:
        itself = (sys.executable, "-m", "bench.spot.tensor_paths")
        server = bed.run((*itself, "serve", bed.address(0), str(at_once)), 0)
        while not server.output.strip():
            time.sleep(0.1)
        words = ("exchange", bed.address(0), server.output.split()[0])
        started = [bed.run((*itself, *words, str(node)), node) for node in range(1, workers + 1)]
        for each in started:
            each.wait(120)
        return sum(float(each.output.split()[-1]) for each in started)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["exchange"]:
        exchange(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        heads = ("updates/s", *(f"{count} workers" for count in FLEETS))
        rows = ([name, *(f"{measure(count, most):.2f}" for count in FLEETS)] for name, most in AT_ONCE.items())
        show(heads, rows)


if __name__ == "__main__":
    main()
