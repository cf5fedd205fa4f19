"""What traces written by hand are made of, against sums worked by hand."""

import gzip
import json
import random
import zipfile

import pytest
from hand_traces import (
    ALL_REDUCE,
    GEMM,
    TWO_STEPS,
    document,
    kernel,
    launch,
    meeting,
    note,
    per_step,
    two_steps,
    write,
)

from stash.core.errors import UserError
from stash.core.trace_records import TRACE_PARTS
from stash.trace.command import read_job


def micros(trace):
    """Microseconds of a step, mean over steps and ranks, of what there is."""
    return {part.name: round(part.seconds * 1e6, 3) for part in trace.traced if part.seconds}


def test_steps_of_a_device_add_up_to_what_its_streams_did(tmp_path):
    trace = read_job([str(write(tmp_path / "a.json", two_steps()))])
    assert per_step(trace) == TWO_STEPS
    assert [round(step.seconds * 1e6) for step in trace.steps if step.seconds] == [80, 70]
    exchange = trace.part("exchange")
    assert exchange is not None
    assert exchange.whole_seconds == pytest.approx(15e-6)  # 30 in one of two steps
    assert exchange.hidden_share == pytest.approx(1 / 3)


def test_the_whole_trace_is_one_step_from_its_first_kernel_to_its_last(tmp_path):
    trace = read_job([str(write(tmp_path / "a.json", two_steps()))], whole=True)
    assert micros(trace) == {"compute": 70.0, "exchange": 20.0, "transfer": 10.0, "host": 40.0}


EVENTS = '"traceEvents": ['


def _with(event):
    return lambda text: text.replace(EVENTS, f"{EVENTS}{event},")


READABLE = {
    "as written": lambda text: text,
    "compact": lambda text: json.dumps(json.loads(text), separators=(",", ":")),
    "only the list": lambda text: json.dumps(json.loads(text)["traceEvents"]),
    "nested lists of objects": lambda text: text.replace(
        '"args": {', '"args": {"x": [{"y": 1}, {"y": 2}],'
    ),
    "a time that is no number": _with(
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN, "dur": 1}'
    ),
    "an escape that is none": lambda text: text.replace("cutlass::Params", "C:\\qxx"),
    "a duration that is missing": _with('{"ph": "X", "cat": "kernel", "name": "k", "ts": 3}'),
    "times as texts": lambda text: text.replace('"ts": 110', '"ts": "110"'),
    "correlation as text": _with(
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 3, "args": {"correlation": "x"}}'
    ),
    "another unit on the display": lambda text: text.replace(
        EVENTS, f'"displayTimeUnit": "ns", {EVENTS}'
    ),
    "a base at the end": lambda text: (
        text.rstrip().removesuffix("}") + ', "baseTimeNanoseconds": 17000}'
    ),
}
EXPECTED = {part: TWO_STEPS[0].get(part, 0.0) / 1e6 for part in TRACE_PARTS}


@pytest.mark.parametrize("how", READABLE)
def test_a_trace_is_read_however_it_is_written(how, tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text(READABLE[how](json.dumps(document(two_steps()), indent=2)))
    trace = read_job([str(path)])
    assert [step.parts for step in trace.steps if step.number == 1] == [pytest.approx(EXPECTED)]


def test_events_out_of_order_and_twice_change_nothing(tmp_path):
    events = two_steps() * 2
    random.Random(3).shuffle(events)
    assert per_step(read_job([str(write(tmp_path / "a.json", events))])) == TWO_STEPS


@pytest.mark.parametrize("packed", ["gz", "zip"])
def test_packed_files_are_read(packed, tmp_path):
    text = json.dumps(document(two_steps())).encode()
    path = tmp_path / f"rank0.json.{packed}"
    if packed == "gz":
        path.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]))  # of two members
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rank0.json", text)
    assert per_step(read_job([str(path)])) == TWO_STEPS


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(packed, tmp_path):
    text = json.dumps(document(two_steps()), indent=2)
    end = text.index("}", text.index('"ts": 110'))
    path = tmp_path / "rank0.json"
    if packed:
        noise = json.dumps(
            [
                {"ph": "X", "cat": "overhead", "name": str(random.Random(n).random())}
                for n in range(9)
            ]
        )
        path.write_bytes(gzip.compress((text[:end] + noise).encode())[:-80])
    else:
        path.write_text(text[:end])
    trace = read_job([str(path)])
    assert trace.steps[0].parts["compute"] == pytest.approx(30e-6)
    assert trace.steps[1].why_left_out
    assert any("cut off at byte" in text or "ends early" in text for text in trace.warnings)


def test_names_inside_template_arguments_are_no_communication(tmp_path):
    events = [
        *two_steps()[:5],
        kernel(
            "void at::native::elementwise_kernel<nccl_all_reduce_lambda, ncclKernel>(int)",
            10,
            40,
            1,
        ),
        kernel("void deep_ep::internode::dispatch<true, 8>(int*)", 40, 60, 2),
        kernel("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", 60, 80, 3),
    ]
    assert per_step(read_job([str(write(tmp_path / "a.json", events))]))[0] == {
        "compute": 30.0,
        "exchange": 40.0,
        "host": 5.0,
        "input": 5.0,
    }


def test_what_sounds_like_communication_is_named_and_can_be_made_so(tmp_path):
    events = [
        *two_steps()[:4],
        kernel("void mine::ring_allreduce<4>(int)", 10, 40, 1),
        kernel(GEMM, 40, 80, 2),
    ]
    file = str(write(tmp_path / "a.json", events))
    assert list(read_job([file]).like_exchange) == ["void mine::ring_allreduce<4>(int)"]
    found = read_job([file], more=["ring_allreduce"])
    assert per_step(found)[0]["exchange"] == 30.0
    assert not found.like_exchange
    with pytest.raises(UserError, match=r"--comm-kernel \(: it is no regular expression"):
        read_job([file], more=["("])


def test_an_annotation_says_what_a_name_does_not(tmp_path):
    events = [
        *two_steps()[:4],
        note("nccl:all_reduce", 5.5, 6.5),
        kernel("fancy", 10, 40, 2),
        kernel(GEMM, 40, 80, 1),
    ]
    assert per_step(read_job([str(write(tmp_path / "a.json", events))]))[0]["exchange"] == 30.0


def test_a_step_whose_kernels_are_missing_is_left_out(tmp_path):
    trace = read_job([str(write(tmp_path / "a.json", [*two_steps(), launch(110, 99)]))])
    assert [step.why_left_out for step in trace.steps] == [
        "",
        "rank 0: 1 of its 2 launches have no kernel in the trace",
    ]


def test_without_annotations_steps_end_with_the_optimizer(tmp_path):
    events = [event for event in two_steps() if "Profiler" not in event["name"]]
    ends = [note("Optimizer.step#SGD.step", at, at + 1) for at in (0, 90, 199)]
    assert len(read_job([str(write(tmp_path / "a.json", [*events, *ends]))]).steps) == 2


# Several ranks


def ranks(tmp_path, *traces):
    files = [
        str(write(tmp_path / f"rank{n}.json", each, rank=n, world=len(traces)))
        for n, each in enumerate(traces)
    ]
    return read_job(files)


def test_the_last_rank_needs_the_transfer_and_the_others_wait(tmp_path):
    trace = ranks(tmp_path, meeting(0, 10, 110), meeting(1, 80, 110))
    assert [
        {name: round(value * 1e6) for name, value in rank.parts.items() if value}
        for rank in trace.ranks
    ] == [
        {"compute": 10, "contention": 70, "exchange": 30},
        {"compute": 80, "exchange": 30},
    ]
    assert [rank.last_share for rank in trace.ranks] == [0, 1]
    assert [round((rank.late_seconds or 0) * 1e6) for rank in trace.ranks] == [0, 70]
    assert trace.ranks[1].late_by == "compute"
    (collective,) = trace.collectives
    assert (collective.op, collective.bytes) == ("allreduce", 4000)
    assert collective.bus_bytes_per_second == pytest.approx(4000 / 30e-6)
    suppositions = {each.name: round(each.step_seconds * 1e6) for each in trace.suppositions}
    assert suppositions["rank 1 in time"] == 40  # of 110


@pytest.mark.parametrize("sequence", [None, 12])
def test_collectives_are_matched_by_number_else_by_order(sequence, tmp_path):
    facts = {} if sequence is None else {"Seq": sequence}
    trace = ranks(tmp_path, meeting(0, 10, 110, **facts), meeting(1, 80, 110, **facts))
    assert trace.part("contention") is not None


def test_ranks_that_ran_different_collectives_are_not_matched(tmp_path):
    trace = ranks(tmp_path, meeting(0, 10, 110), meeting(1, 80, 110, op="broadcast"))
    assert trace.part("contention") is None
    assert any("did not run the same collectives" in text for text in trace.warnings)


def test_waiting_for_another_stage_is_a_bubble(tmp_path):
    pair = {"Src Rank": 0, "Dst Rank": 1}
    trace = ranks(
        tmp_path, meeting(0, 10, 60, op="send", **pair), meeting(1, 30, 60, op="recv", **pair)
    )
    bubble = trace.part("bubble")
    assert bubble is not None
    assert bubble.seconds == pytest.approx(10e-6)  # 20 on one of two ranks


def test_one_rank_alone_says_nothing_of_waiting(tmp_path):
    trace = read_job([str(write(tmp_path / "rank1.json", meeting(1, 10, 110), rank=1, world=2))])
    assert set(trace.unknown) == {"contention", "bubble"}
    assert any("traces of 1 rank of 2 are missing (0)" in text for text in trace.warnings)


def test_gloo_is_read_from_its_spans(tmp_path):
    events = [
        note("ProfilerStep#1", 0, 10_000),
        note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 2000),
        note("aten::stack", 100, 1900, kind="cpu_op"),
        note("aten::mm", 2000, 5000, kind="cpu_op"),
        note("gloo:all_reduce", 4000, 6500, thread=2),
        note("aten::add", 9000, 10_000, kind="cpu_op"),
    ]
    trace = read_job([str(write(tmp_path / "rank0.json", events, rank=0, world=1))])
    assert per_step(trace) == [
        {"input": 2000.0, "compute": 4000.0, "exchange": 1500.0, "loop": 2500.0}
    ]
    assert trace.device == "cpu"


def test_every_step_adds_up_whatever_is_in_it(tmp_path):
    for seed in range(12):
        draw = random.Random(seed)
        events = [note(f"ProfilerStep#{n}", 5000 * n, 5000 * n + 4990) for n in range(4)]
        for link in range(60):
            at = draw.uniform(0, 19_000)
            start = at + draw.uniform(0, 3000)
            name = draw.choice([GEMM, ALL_REDUCE, "Memcpy DtoH (Device -> Pageable)"])
            events += [
                launch(at, link),
                kernel(name, start, start + draw.uniform(0, 900), link, draw.randrange(4)),
            ]
        trace = read_job([str(write(tmp_path / "a.json", events))])
        for step in trace.steps:
            if step.seconds is not None:
                assert sum(step.parts.values()) == pytest.approx(step.seconds, abs=1e-12)
        assert sum(part.seconds for part in trace.traced) == pytest.approx(
            trace.step_seconds, abs=1e-12
        )


def test_s_is_the_step_over_one_in_which_all_ranks_are_alike(tmp_path):
    slow = meeting(0, 90, 110), meeting(1, 30, 110), meeting(2, 30, 110)
    (alike,) = [each for each in ranks(tmp_path, *slow).suppositions if each.name == "ranks alike"]
    assert alike.step_seconds == pytest.approx(70e-6)  # computing takes 90, 30 and 30, exchange 20
    assert alike.text.endswith("S is 1.571")  # 110 / 70
    two = [str(tmp_path / f"rank{rank}.json") for rank in (0, 1)]  # of 3: it is unknown
    (some,) = [each for each in read_job(two).suppositions if each.name == "ranks alike"]
    assert "S is" not in some.text
