"""What ``stash probe`` prints: machines, links with intervals, findings, what is unknown."""

from probe_builder import GBIT, host, links, probe, ring, stream
from readings import CATALOG

from stash.analysis.findings.probe_reading import read_probe
from stash.core.records.host import Timing, Unmeasured
from stash.report.probe_page import page
from stash.ui.terminal import render


def report(*hosts):
    measured = probe(*hosts)
    return render(page(measured, read_probe(measured, CATALOG)))


def test_what_was_not_measured_is_said_with_its_reason_and_shown_as_no_number():
    skipped = links(skipped=(Unmeasured(link="streams", why="there is one node"),))
    text = report(host(measured=skipped))
    assert "unknown  streams: there is one node" in text
    assert "TCP" not in text
    assert "no link was measured" in report(host())
    assert "No findings." in report(host())


def test_a_single_repetition_is_shown_without_an_interval():
    once = links(reads=()).model_copy(update={"streams": (stream(0, 1, 1, GBIT, repetitions=1),)})
    assert "+/- unknown" in report(host(measured=once))


def test_a_curve_that_two_parameters_do_not_describe_is_not_given_two():
    clean = ring(2, 1e-5, 1e9, noise=0.0)
    bumpy = tuple(
        Timing(
            bytes=t.bytes,
            seconds=tuple(s * (6 if 10**4 < t.bytes < 10**6 else 1) for s in t.seconds),
        )
        for t in clean.timings
    )
    text = report(host(measured=links(exchanges=(clean.model_copy(update={"timings": bumpy}),))))
    assert "do not describe this curve" in text
    assert "per hop" not in text
    assert "per hop" in report(host(measured=links(exchanges=(clean,))))


def test_of_alike_nodes_the_slowest_exchange_is_shown_once():
    nodes = [host(f"n{i}", links(exchanges=(ring(2, 1e-5, 1e9 / (1 + i)),))) for i in range(3)]
    text = report(*nodes)
    assert text.count("all-reduce, gloo, 2 ranks inside") == 1
    assert "inside n2 (slowest of 3)" in text
    assert "n0, n1 and n2 most like" in text
