"""Frames on a connection whose end is closed while it is still sending."""

from __future__ import annotations

import socket

import pytest

from stash.spot.train.frames import drain


def test_a_link_that_this_end_has_closed_is_a_lost_connection() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    ours.close()
    theirs.close()
    with pytest.raises(ConnectionError, match="the link was closed"):
        drain(ours)
