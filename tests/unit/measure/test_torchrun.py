"""torchrun's store listens where it is told to, and what does not concern this machine alone is left to torch."""

import os
import socket
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from stash.measure import torchrun
from stash.measure.linux import interfaces


class Store:
    """As torch's: remembers how it was made."""

    def __init__(self, host, port, world=None, is_master=False, **named):
        self.named = named


@pytest.fixture
def store():
    return type("Store", (Store,), {"__init__": Store.__init__})


def test_only_the_first_server_is_handed_the_socket(store):
    listener = interfaces.listen_at("127.0.0.1", 0)
    assert listener is not None
    torchrun.hand_over(listener, store)
    client = store("127.0.0.1", 1)
    server, another = store("127.0.0.1", 1, 2, True), store("127.0.0.1", 1, is_master=True)
    assert [("master_listen_fd" in made.named) for made in (client, server, another)] == [
        False,
        True,
        False,
    ]
    os.close(server.named["master_listen_fd"])


def test_a_store_that_takes_no_socket_on_libuv_takes_it_otherwise(store):
    def older(self, *arguments, use_libuv=True, **named):
        if use_libuv:
            raise NotImplementedError
        self.named = named

    store.__init__ = older  # type: ignore[method-assign, assignment]
    listener = interfaces.listen_at("127.0.0.1", 0)
    assert listener is not None
    torchrun.hand_over(listener, store)
    os.close(store("127.0.0.1", 1, 2, True).named["master_listen_fd"])


def test_torchs_own_store_listens_there_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(dist.TCPStore, "__init__", dist.TCPStore.__init__)  # undone at the end
    listener = interfaces.listen_at("127.0.0.1", 0)
    port = listener.getsockname()[1]
    torchrun.hand_over(listener, dist.TCPStore)
    store = dist.TCPStore("127.0.0.1", port, 1, True, multi_tenant=True)
    store.set("key", "value")
    places = [
        c.laddr for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN
    ]
    assert [place.ip for place in places if place.port == port] == ["127.0.0.1"]


def resolved(monkeypatch, *addresses):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(interfaces.socket, "getaddrinfo", lambda *a, **k: found)


@pytest.mark.parametrize("addresses", [["127.0.1.1"], ["10.0.0.1", "10.0.0.2"]])
def test_a_name_that_others_may_know_by_another_address_is_left_to_torch(monkeypatch, addresses):
    resolved(monkeypatch, *addresses)
    assert torchrun._open_listener("node0", 0) is None


def test_an_address_that_is_translated_on_the_way_is_left_to_torch_and_a_port_that_is_taken_is_said():
    assert torchrun._open_listener("192.0.2.1", 0) is None
    taken = interfaces.listen_at("127.0.0.1", 0)
    with taken, pytest.raises(SystemExit, match="Address already in use"):
        torchrun._open_listener("127.0.0.1", taken.getsockname()[1])


def test_ranks_of_one_machine_talk_over_loopback_unless_the_user_chose(monkeypatch):
    for name in torchrun._INTERFACES:
        monkeypatch.setenv(name, "")  # what monkeypatch puts back
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth9")
    torchrun._stay_on_loopback()
    assert Path("/sys/class/net", os.environ["GLOO_SOCKET_IFNAME"]).exists()
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth9"
