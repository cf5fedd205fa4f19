"""The report a person sees of a profile, whole, against golden files."""

import pytest
from golden_numbers import copy_close_numbers
from golden_profiles import GOLDEN, PROFILES, outputs
from profile_builder import build, ledger

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import SampleCounts
from stash.core.artefact import load
from stash.core.records.profile import LedgerPlace
from stash.report.profile_contract import document
from stash.report.profile_page import page
from stash.ui.html import render as render_html
from stash.ui.markdown import render as render_markdown
from stash.ui.terminal import render


def report(profile, width=80, colour=False):
    breakdown = attribute(profile)
    return render(page(breakdown, verdict(breakdown, profile), profile), width, colour)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("ending", ["txt", "json"])
def test_stash_says_of_a_golden_profile_what_it_always_said(name, ending):
    expected = (GOLDEN / f"{name}.expected.{ending}").read_text(encoding="utf-8")
    text = outputs(load(GOLDEN / f"{name}.stash.json"))[ending]
    assert copy_close_numbers(text, expected) == expected


@pytest.mark.parametrize(
    ("least", "most", "batch"),
    [(1024, 4050, "1,024 to 4,050"), (99.56, 100.4, "99.6 to 100"), (4096, 4096, "4096")],
)
def test_batches_are_written_without_exponents(least, most, batch):
    profile = build({"solo": [0.1] * 3, "crowd": [0.2] * 3})
    counts = SampleCounts(per_rung={}, least=least, most=most)
    breakdown = attribute(profile).model_copy(update={"samples": counts})
    assert (
        f"batch {batch} per device"
        in page(breakdown, verdict(breakdown, profile), profile).subtitle
    )


@pytest.mark.parametrize("name", PROFILES)
def test_a_golden_profile_still_loads_to_what_was_saved(name):
    assert load(GOLDEN / f"{name}.stash.json") == PROFILES[name]()


STEADY = {"solo": [0.1] * 3, "warm": [0.2] * 3}
READS_NOTHING = {"warm": {"files": 0, "read_bytes": 240, "storage_bytes": 0}}
"""Of blocks: a worker's module is all that is read."""


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"ranks": 1}, "one CPU process: transfer, contention, interconnect, network"),
        ({"ranks": 2}, "2 CPU processes on one node: transfer, network"),
        ({"ranks": 4, "nodes": 2}, "4 CPU processes on 2 nodes: transfer"),
        (
            {"ranks": 2, "nodes": 2},
            "2 CPU processes on 2 nodes, one on each: transfer, interconnect",
        ),
        ({"ranks": 1, "device": "cuda:0"}, "one GPU: contention, interconnect, network"),
        ({"ranks": 4, "device": "xpu"}, "4 devices on one node: network"),
        (
            {"ranks": 1, "block_extra": READS_NOTHING},
            "one CPU process without data files: transfer, contention, interconnect, network, fetch",
        ),
        (
            {"ranks": 2, "nodes": 2, "block_extra": READS_NOTHING},
            "2 CPU processes without data files on 2 nodes, one on each: transfer, interconnect, fetch",
        ),
    ],
)
@pytest.mark.parametrize("form", [render, render_html, render_markdown])
def test_what_a_job_cannot_have_is_one_line_and_not_unknown(form, job, says):
    profile = build(STEADY, **job)
    breakdown = attribute(profile)
    text = " ".join(
        form(page(breakdown, verdict(breakdown, profile), profile)).replace("\\_", "_").split()
    )
    assert f"does not apply to {says}" in text
    absent = says.rpartition(": ")[2].split(", ")
    assert not {
        name for name in absent if f"{name} unknown" in text or f"| {name} | unknown" in text
    }
    names = [
        missing["name"]
        for missing in document(breakdown, verdict(breakdown, profile), profile)["skipped"]
    ]
    assert set(absent) <= set(names)


@pytest.mark.parametrize(
    "lacks", [{"files": 3}, {"read_bytes": None}, {"held_bytes": 4096}, {"read_bytes": 10**6}]
)
def test_a_loader_that_may_read_files_leaves_fetch_unknown(lacks):
    extra = {"warm": READS_NOTHING["warm"] | lacks}
    text = " ".join(
        report(build(STEADY, ranks=1, block_extra=extra, skipped={"cold": "out of time"})).split()
    )
    assert "fetch unknown: out of time" in text
    assert "network, fetch" not in text


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ("last.pt",),
            "a file; if you do not need it: `rm last.pt`.",
        ),
        (
            ("my runs/", "a.log"),
            "2 files and folders; if you do not need them: `rm -r 'my runs/' a.log`.",
        ),
        (("checkpoints/",), "a folder; if you do not need it: `rm -r checkpoints/`."),
        (("-x.pt", "b.pt"), "2 files; if you do not need them: `rm ./-x.pt b.pt`."),
        (
            tuple(f"{n}.pt" for n in range(9)),
            "`rm 0.pt 1.pt 2.pt 3.pt 4.pt 5.pt` (and 3 more: `left_files` of --json).",
        ),
    ],
)
def test_what_the_job_left_is_said_with_the_command_that_removes_it(names, says):
    profile = build(STEADY).model_copy(update={"left_files": names})
    breakdown = attribute(profile)
    text = " ".join(render(page(breakdown, verdict(breakdown, profile), profile), 120).split())
    assert "! The profiled job created " in text
    assert says in text
    assert text.index(says) < text.index("1. ")
    assert document(breakdown, verdict(breakdown, profile), profile)["left_files"] == list(names)
    assert "The profiled job left" not in report(build(STEADY))


def test_unknown_stalls_of_one_reason_share_a_row():
    times = {"solo": [0.1] * 3, "crowd": [0.2] * 3}
    no_loader = dict.fromkeys(("warm", "cold"), "no data loader was seen")
    profile = build(times, skipped=no_loader, workload={"loaders": ()})
    text = " ".join(report(profile).split())
    assert "prep, fetch unknown: no data loader was seen; contained in compute" in text
    workload = {"loaders": (), "before_forward": 0.011}
    text = " ".join(report(build(times, skipped=no_loader, workload=workload)).split())
    assert (
        "no data loader was seen: prep and fetch are at most 1.1% of a step, as part of compute"
        in text
    )
    assert "fetch unknown" not in text


def test_beside_profiling_again_stands_what_can_be_done_at_once():
    # GIVEN steps that vary too much for a verdict, and a loop that is certainly slow
    place = LedgerPlace(
        row="loop", file="train.py", line=24, text="acc = metrics()", seconds=16 * 0.01
    )
    typed = ledger(a_step={"loop": 0.01}, places=(place,))
    noisy = {"solo": [0.02, 0.09, 0.03, 0.06], "warm": [0.02, 0.09, 0.03, 0.06]}
    profile = build(noisy, ranks=1, ledgers=(typed,))
    breakdown = attribute(profile)
    advice = verdict(breakdown, profile)
    assert advice.kind == "cannot tell"
    assert page(breakdown, advice, profile).next_steps == advice.next_steps[:2]
    assert any("train.py:24" in step for step in advice.next_steps[:2])
