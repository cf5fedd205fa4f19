"""The way out of this machine, asked of the kernel and of a machine with described interfaces."""

import socket

import pytest

from stash.core.membership import address_towards
from stash.measure.linux import interfaces
from stash.measure.linux.interfaces import interface_of, interface_towards, is_here


def test_the_interface_of_an_address():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None


def test_the_way_to_this_machine_is_a_loopback_address_and_no_interface_to_be_chosen():
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert interface_towards("127.0.0.1") is None


def test_a_host_that_is_not_there_is_on_no_way():
    with pytest.raises(OSError, match=r"."):
        address_towards("no-such-host.invalid")
    assert interface_towards("no-such-host.invalid") is None
    assert interface_towards("") is None


@pytest.mark.parametrize(("address", "here"), [("127.0.0.1", True), ("192.0.2.1", False)])
def test_a_name_of_several_addresses_is_this_machines_if_one_of_them_is(monkeypatch, address, here):
    found = [(socket.AF_INET, 1, 6, "", (one, 0)) for one in ("192.0.2.9", address)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found)
    assert is_here("head") is here


def test_without_psutil_a_node_has_an_address_all_the_same(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(interfaces, "import_borrowed", missing)
    monkeypatch.setenv(interfaces.CHOSEN, "eth0")
    assert interfaces.address_of("eth0") is None
    assert interfaces.own_address()
