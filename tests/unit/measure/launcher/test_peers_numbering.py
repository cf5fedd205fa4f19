"""Nodes that number themselves: who knows the secret gets a number, whoever does not gets none."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stash.core.errors import UserError
from stash.measure.launcher import peers
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.peers import number_nodes

SECRET = "0123456789abcdef"
PATIENCE = 60.0


@pytest.fixture
def port():
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def node(port, nodes=2, secret=SECRET, host="127.0.0.1"):
    return Cluster(1, nodes, None, f"{host}:{port}", rdzv_id=secret)


def number(cluster, patience=PATIENCE):
    return number_nodes(cluster, patience=patience).node_rank


def begun(pool, port, nodes):
    """Node 0, once it listens."""
    first = pool.submit(number, node(port, nodes))
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return first
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_the_first_to_come_to_an_address_of_its_own_is_node_0_and_the_others_follow(port, pool):
    numbers = [pool.submit(number, node(port, 4)) for _ in range(4)]
    assert sorted(each.result() or 0 for each in numbers) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "cluster", [Cluster(2), Cluster(1, 2, 1, "nowhere:1"), Cluster(1, 3, 0, "nowhere:1")]
)
def test_nodes_that_have_a_number_do_not_ask(cluster):
    assert number_nodes(cluster) is cluster


def test_node_0_draws_a_secret_and_says_it(port, pool, capsys):
    first, printed = pool.submit(number_nodes, node(port, secret=None), PATIENCE), ""
    while not printed.endswith("\n"):
        time.sleep(0.01)
        printed += capsys.readouterr().err
    secret = printed.strip().rpartition(" ")[2]
    assert len(secret) >= peers.MIN_SECRET
    assert number(node(port, secret=secret)) == 1
    assert first.result().node_rank == 0


def test_another_secret_is_refused_on_that_node_and_node_0_waits_for_the_right_one(port, pool):
    first = begun(pool, port, 2)
    with pytest.raises(UserError, match="give the same on all nodes"):
        number(node(port, secret="another secret"))
    assert number(node(port)) == 1
    assert first.result() == 0


def test_a_stranger_in_the_place_of_node_0_gives_no_node_a_number(port, pool):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        asked = pool.submit(number, node(port))
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"\0" * 16)
            connection.recv(48)
            connection.sendall((7).to_bytes(4, "big") + b"\0" * 32)
            with pytest.raises(UserError, match="does not know the --rdzv-id"):
                asked.result()


def test_what_makes_no_sense_is_refused_at_once(port):
    with pytest.raises(UserError, match="give 8 or more"):
        number_nodes(node(port, secret="stash"))
    with pytest.raises(UserError, match="no host of that name"):
        number_nodes(node(port, host="no.such.host.invalid"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(UserError, match="which of the 2 nodes is this"):
            number_nodes(node(port, secret=None))


@pytest.mark.parametrize(
    ("alone", "who"), [(True, "1 of 2 nodes came"), (False, "node 0 did not answer")]
)
def test_nodes_that_do_not_come_are_not_waited_for_for_ever(port, alone, who):
    host = "127.0.0.1" if alone else "192.0.2.1"  # an unassigned address (RFC 5737)
    try:
        socket.create_connection((host, port), timeout=0.2).close()
    except OSError:
        pass
    with pytest.raises(UserError, match=who):
        number(node(port, host=host), patience=0.5)
