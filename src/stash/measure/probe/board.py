"""What all nodes have found so far, kept by rank 0 and saved after each part as a whole, valid ``Probe``.

What is still to come stands in it as unmeasured, so a probe that ends early needs no repair. Knows records,
not how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.files import write_whole
from stash.base.records import Copy, DiskRead, Exchange, Host, Links, Preparation, Probe, Stream, Unmeasured, now
from stash.measure.probe.orders import ProbeOrders

Found = Sequence[Copy | DiskRead | Exchange | Preparation | Stream | Unmeasured]


def links(found: Found, elapsed: float) -> Links:
    """Measurements of one node, sorted."""
    return Links(
        created=now(),
        elapsed_seconds=elapsed,
        copies=tuple(one for one in found if isinstance(one, Copy)),
        exchanges=tuple(one for one in found if isinstance(one, Exchange)),
        streams=tuple(one for one in found if isinstance(one, Stream)),
        reads=tuple(one for one in found if isinstance(one, DiskRead)),
        preparation=tuple(one for one in found if isinstance(one, Preparation)),
        skipped=tuple(one for one in found if isinstance(one, Unmeasured)),
    )


class Board:
    """The nodes' hosts with the links measured so far, and the parts that are left."""

    def __init__(self, orders: ProbeOrders, hosts: Sequence[Host]) -> None:
        self._orders = orders
        self._left = list(orders.parts)
        self._hosts = [host.model_copy(update={"links": links((), 0.0)}) for host in hosts]
        self._elapsed = 0.0

    def take(self, part: str, reports: Sequence[tuple[Links, float | None]], elapsed: float) -> None:
        """Add what every node reports of a part, in the order of the nodes: its links, and its steal time so far."""
        for node, (found, steal) in enumerate(reports):
            known = self._hosts[node].links
            assert known is not None
            self._update(node, steal_fraction=steal, links=_joined(known, found))
        for stream in (one for found, _ in reports for one in found.streams):
            self._keep(stream)
        self._left.remove(part)
        self._elapsed = elapsed

    def _keep(self, stream: Stream) -> None:
        """Streams are timed where they arrive, and kept where they come from."""
        known = self._hosts[stream.source].links
        assert known is not None
        self._update(stream.source, links=known.model_copy(update={"streams": (*known.streams, stream)}))

    def _update(self, node: int, **fields: object) -> None:
        self._hosts[node] = self._hosts[node].model_copy(update=fields)

    def probe(self) -> Probe:
        """Everything so far."""
        pending = tuple(Unmeasured(link=part, why="the probe ended before it was measured") for part in self._left)
        hosts = []
        for host in self._hosts:
            assert host.links is not None
            whole = host.links.model_copy(update={"skipped": (*host.links.skipped, *pending)})
            hosts.append(host.model_copy(update={"links": whole}))
        return Probe(
            stash_version=self._orders.version,
            created=now(),
            hosts=tuple(hosts),
            budget_seconds=self._orders.budget,
            elapsed_seconds=self._elapsed,
        )

    def save(self) -> None:
        """Replace the result's file in one step; raises OSError."""
        write_whole(self._orders.result, self.probe().model_dump_json())


def _joined(known: Links, more: Links) -> Links:
    """Both together, but for streams, which do not all belong to this node."""
    kept = ("copies", "exchanges", "reads", "preparation", "skipped")
    fields = {name: (*getattr(known, name), *getattr(more, name)) for name in kept}
    return known.model_copy(update={**fields, "created": more.created, "elapsed_seconds": more.elapsed_seconds})
