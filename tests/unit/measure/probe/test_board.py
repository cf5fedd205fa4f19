"""What all nodes found, kept as one probe that is valid at any moment."""

from __future__ import annotations

from pathlib import Path

from stash.core.records.host import Host, Stream, Timing
from stash.measure.probe.probe_orders import ProbeOrders
from stash.measure.probe.probe_worker import Board, links


def test_streams_are_kept_where_they_come_from_and_what_is_left_is_unmeasured(tmp_path: Path):
    orders = ProbeOrders(str(tmp_path), "", 9.0, ("streams", "exchanges"))
    board = Board(orders, [Host(hostname="a"), Host(hostname="b")])
    stream = Stream(source=0, target=1, flows=1, timings=(Timing(bytes=1, seconds=(1.0,)),))
    board.take("streams", [(links([], 1.0), 0.1), (links([stream], 1.0), None)], 2.0)
    board.save()
    first, second = (host.links for host in board.probe().hosts)
    assert first is not None
    assert second is not None
    assert (first.streams, second.streams) == ((stream,), ())
    assert [one.link for one in first.skipped] == ["exchanges"]
    assert board.probe().hosts[0].steal_fraction == 0.1
    assert orders.result.exists()
