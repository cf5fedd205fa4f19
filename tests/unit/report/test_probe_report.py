"""What ``stash probe`` prints: machines, links with intervals, findings, what is unknown."""

from __future__ import annotations

import re

import pytest
from probe_builder import GBIT, host, links, p3_8xlarge, probe, ring, stream
from readings import CATALOG

from stash.analysis.findings.probe_reading import read
from stash.core.records.host import Nic, Timing, Unmeasured
from stash.report.probe_page import page
from stash.ui.terminal import render

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def report(*hosts, width=80, colour=False, saved=None) -> str:
    measured = probe(*hosts)
    return render(page(measured, read(measured, CATALOG), saved), width, colour)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_longer_than_the_terminal(width, colour):
    long_nic = Nic(name="enp135s0f1np1", bytes_per_second=25 * GBIT, driver="mlx5_core", rdma="mlx5_3")
    text = report(p3_8xlarge(nics=(long_nic,) * 4), width=width, colour=colour, saved="a.host.json")
    assert max(map(len, ESCAPE.sub("", text).splitlines())) <= width


def test_without_colour_the_report_is_plain_ascii():
    text = report(p3_8xlarge())
    assert text.isascii()
    assert "?" not in text
    assert "\x1b[" in report(p3_8xlarge(), colour=True)


def test_the_report_names_the_machine_its_links_with_intervals_and_its_findings():
    text = report(p3_8xlarge())
    assert re.search(r"^  type +aws p3\.8xlarge \(from dmi\)$", text, re.MULTILINE)
    assert re.search(r"^  GPUs +4 x Tesla V100-SXM2-16GB, 17\.2 GB each", text, re.MULTILINE)
    assert re.search(r"^  GPU to GPU +9\.8\d GB/s  \+(/- )?0\.\d+.* \d to \d, slowest of 12", text, re.MULTILINE)
    assert re.search(r"^  GPU pair, slowest +9\.8\d GB/s \+(/- )?0\.\d+.* unknown +unknown", text, re.MULTILINE)
    assert re.search(r"^  ! 2 of 6 pairs of GPUs", text, re.MULTILINE)
    assert re.search(r"^  1\. ", text, re.MULTILINE)
    assert "latency 3.9" in text


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
        Timing(bytes=t.bytes, seconds=tuple(s * (6 if 10**4 < t.bytes < 10**6 else 1) for s in t.seconds))
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
