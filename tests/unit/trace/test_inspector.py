"""Dumps of NCCL's Inspector, in lines as its documentation has them."""

import json

import pytest

from stash.analysis.findings.rates import make_curve
from stash.core.errors import UserError
from stash.core.records.host import Exchange, Timing
from stash.trace.inspector import CommunicatorUse, document, read_dumps

FIRST = CommunicatorUse("0xa", "AllReduce", 8, 1, 1 << 30)


def line(number, microseconds, communicator="0xa", **more):
    """A collective of 1 GiB of eight ranks; formats v4.0 to v4.2."""
    rate = (1 << 30) / microseconds / 1e3
    performance = {
        "coll": "AllReduce",
        "coll_sn": number,
        "coll_msg_size_bytes": 1 << 30,
        "coll_exec_time_us": microseconds,
        "coll_algobw_gbs": rate,
        "coll_busbw_gbs": rate * 1.75,
    }
    header = {"id": communicator, "rank": 2, "n_ranks": 8, "nnodes": 1}
    return json.dumps(
        {"header": header, "metadata": {"hostname": "secret"}, "coll_perf": performance, **more}
    )


def batch(*lines, count=None):
    """The same as format v4.3 has them: the communicator once, before its collectives."""
    rows = [json.loads(each) for each in lines]
    marker = {
        "header": rows[0]["header"],
        "metadata": {},
        "dump_stats": {"coll_records": count or len(rows)},
    }
    return [json.dumps(marker), *(json.dumps({"coll_perf": row["coll_perf"]}) for row in rows)]


def files(folder, *ranks):
    paths = [folder / f"secret-pid{rank}.log" for rank in range(len(ranks))]
    for path, lines in zip(paths, ranks, strict=True):
        path.write_text("".join(f"{each}\n" for each in lines))
    return paths


@pytest.mark.parametrize("new", [False, True])
def test_the_rank_that_waited_for_none_says_how_fast_a_collective_was(new, tmp_path):
    lines = [line(1, 5000), line(2, 9000)], [line(1, 7000), line(2, 6000)]
    (speed,) = read_dumps(
        files(tmp_path, *(batch(*each) if new else list(each) for each in lines))
    ).speeds
    assert (speed.use, speed.count) == (FIRST, 2)
    assert speed.seconds == pytest.approx(5.5e-3)  # of 5 and 6
    assert speed.bus_bytes_per_second == pytest.approx(1.75 * (1 << 30) * (1 / 5e-3 + 1 / 6e-3) / 2)


def test_lines_without_their_communicator_are_lost(tmp_path):
    lost_marker = batch(line(5, 5000, "0xb"), line(6, 5000, "0xb"))[1:]
    account = read_dumps(files(tmp_path, ["{", *batch(line(1, 5000)), *lost_marker]))
    assert [speed.use for speed in account.speeds] == [FIRST]
    assert account.lost == 3


def test_files_of_others_are_no_dumps(tmp_path):
    with pytest.raises(UserError, match="no collective is in these files"):
        read_dumps(files(tmp_path, ["hello", '{"coll_perf": null}', "[" * 10_000]))


def test_a_communicator_slower_than_its_like_is_named(tmp_path, run_stash):
    folder = tmp_path / "dumps"
    folder.mkdir()
    files(
        folder,
        [line(n, 5000, name) for n in range(3) for name in ("0xa", "0xb")],
        [line(1, 10_000, "0xc")],
    )
    shown = " ".join(run_stash("trace", str(folder), "--nccl-inspector").out.split())
    assert "0xc has 188 GB/s in AllReduce of 1.07 GB; communicators like it have 376 GB/s" in shown
    assert "secret" not in shown
    answer = json.loads(run_stash("trace", str(folder), "--nccl-inspector", "--json").out)
    assert [speed["communicator"] for speed in answer["speeds"]] == ["0xa", "0xb", "0xc"]


def test_all_reduces_stand_beside_those_of_a_probe_of_as_many_ranks(tmp_path):
    timings = (Timing(bytes=1 << 26, seconds=(0.001,)), Timing(bytes=900_000_000, seconds=(0.004,)))
    measured = [Exchange(backend="nccl", nodes=1, ranks=ranks, timings=timings) for ranks in (4, 8)]
    paths = files(tmp_path, [line(1, 5000)])
    found = document(read_dumps(paths, [make_curve(each, "a") for each in measured]))
    assert [speed["probed_bytes_per_second"] for speed in found["speeds"]] == [
        pytest.approx(1.75 * 9e8 / 0.004)
    ]
    assert (
        document(read_dumps(paths, [make_curve(measured[0], "a")]))["speeds"][0][
            "probed_bytes_per_second"
        ]
        is None
    )


@pytest.mark.parametrize(
    "words",
    [("--whole",), ("--flight-recorder",), ("--against", "tests/golden/one-node.stash.json")],
)
def test_options_that_do_not_go_with_it_are_refused(words, tmp_path, run_stash):
    files(tmp_path, [line(1, 5000)])
    run_stash("trace", str(tmp_path), "--nccl-inspector", *words, code=2)
