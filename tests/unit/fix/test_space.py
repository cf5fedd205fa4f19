"""Which changes are proposed for which jobs, and what they can save by forecast."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from breakdowns import flat
from profile_builder import build
from searches import LOADER

from stash.advice.case import Case
from stash.analysis.attribution import attribute
from stash.analysis.run_account import RunAccount, RunRow
from stash.core.intervals import Interval
from stash.core.ledger_rows import CHECKPOINT, COLLECTOR, EPOCH_START, EVALUATION, LOOP
from stash.core.measured import WorkerTimes
from stash.core.records.profile import Loader
from stash.fix import loader_changes
from stash.fix.command import _describe_by_hand, _launch_seconds, _list_advice
from stash.fix.script_changes import Facts, Site, merge_changes, thread_vars
from stash.fix.search_state import Final
from stash.fix.space import propose_changes

DDP = {
    "bucket_bytes_cap": 25 * 2**20,
    "gradient_as_bucket_view": False,
    "static_graph": False,
    "find_unused_parameters": True,
}


def facts(device="cpu", loader=LOADER, ranks=2, **workload):
    times = flat(solo=0.1, crowd=0.1, node=0.12, warm=0.2, cold=0.2)
    loaders = (Loader(kind="map", workers=loader["num_workers"], samples=1000),)
    profile = build(times, device=device, ranks=ranks, workload={"loaders": loaders, **workload})
    sites = (
        Site("loader", "mine", "/home/me/train.py", 3, 3, 0, 9, loader),
        Site("ddp", "ddp", "/home/me/train.py", 4, 4, 0, 9, DDP),
        Site(
            "optimizer",
            "sgd",
            "/home/me/train.py",
            5,
            5,
            0,
            9,
            {"class": "SGD", "takes": ["fused"], "fused": None},
        ),
    )
    return Facts(Case(attribute(profile), profile), sites, "mine", threads=1)


def names(of, *wanted):
    return {each.name for each in propose_changes(of, wanted)[0]}


def why(of, knob):
    return propose_changes(of)[1][knob]


@pytest.mark.parametrize(
    ("needed", "room", "order"),
    [
        (32, 2, [8, 32, 2, 16, 4, 1]),
        (16, 4, [8, 16, 4, 2, 1]),
        (4, 2, [4, 2, 1]),
        (8, 8, [8, 4, 2, 1]),
    ],
)
def test_of_few_numbers_of_workers_the_first_is_far_from_neither_advice_nor_cores(
    needed, room, order
):
    assert (
        loader_changes.order_workers({n for n in (1, 2, 4, 8, 16, 32) if n <= needed}, needed, room)
        == order
    )


def test_streams_and_jobs_without_a_loader_have_no_workers_to_set():
    assert why(facts(loader={**LOADER, "iterable": True}), "workers").startswith(
        "a stream gives each worker all of it"
    )
    nothing = Facts(facts().case, (), None, 1)
    assert why(nothing, "workers") == "no DataLoader trains the job"


def test_on_cpus_nothing_of_gpus_is_tried_and_what_takes_long_only_if_named():
    found = names(facts())
    assert not found & {"pin", "non_blocking", "cudnn.benchmark", "compile", "bfloat16"}
    assert names(facts(), "compile") == {"compile"}
    assert "pin" in names(facts(device="cuda"))


def test_workers_are_tried_with_the_threads_that_leave_them_cores():
    of = facts()
    busy = replace(of, threads=of.cores // of.ranks)
    workers = {each.name: each for each in propose_changes(busy)[0] if each.knob == "workers"}
    both = workers["workers=2+threads=2"]
    assert both.settings == {"loader": {"num_workers": 2, "site": "mine"}, "threads": 2}
    assert both.variables["OMP_NUM_THREADS"] == "2"
    assert both.knobs == {"workers", "threads"}
    assert {each for each in workers if "+" in each} == {
        "workers=2+threads=2",
        "workers=3+threads=1",
    }
    # a thread leaves cores as it is
    assert not any("threads" in each for each in names(of, "workers"))


def test_numerics_need_consent():
    changes, _ = propose_changes(facts(device="cuda"))
    assert {each.name for each in changes if each.consent} == {"cuda.matmul.allow_tf32", "bfloat16"}


def test_a_loader_that_a_library_builds_again_is_the_scripts_own():
    built = facts()
    again = Site("loader", "lib", "/x/site-packages/accelerate/data_loader.py", 9, 9, 0, 5, LOADER)
    around = Facts(built.case, (*built.sites, again), "lib", 1)
    assert around.loader.key == "mine"


def test_a_graph_is_not_called_static_while_unused_parameters_are_looked_for():
    assert why(facts(), "static_graph") == "find_unused_parameters goes first"
    assert "find_unused_parameters" in names(facts())


def test_no_graph_is_called_static_where_gradients_are_accumulated_which_ends_the_job():
    loaders = (Loader(kind="map", workers=2, samples=1000, batches_per_step=4),)
    of = facts(loaders=loaders, skips_exchanges=False)
    assert why(of, "static_graph") == "no static graph goes with accumulated gradients (no_sync)"
    (without,) = [each for each in propose_changes(of)[0] if each.knob == "no_sync"]
    assert without.leads


def test_changes_together_are_the_settings_of_all():
    changes = {each.name: each for each in propose_changes(facts())[0]}
    settings, variables = merge_changes(
        [changes["workers=4"], changes["find_unused_parameters"], changes["threads=2"]]
    )
    assert settings == {
        "loader": {"num_workers": 4, "site": "mine"},
        "ddp": {"find_unused_parameters": False},
        "threads": 2,
    }
    assert variables == thread_vars(2)


def test_without_workers_a_loader_saves_no_more_than_steps_wait_for_it():
    def forecast(workers, *waits):
        of = facts(loader={**LOADER, "num_workers": workers})
        blocks = []
        for block in of.case.profile.blocks:
            each = (waits[block.rank],) * block.steps if waits and block.rung == "warm" else ()
            blocks.append(replace(block, step_waits=each))
        profile = of.case.profile.model_copy(update={"blocks": tuple(blocks)})
        return replace(of, case=Case(of.case.breakdown, profile)).prep_seconds

    whole = facts().most_seconds("prep")
    assert forecast(0, 0.003, 0.004) == pytest.approx(0.004)  # the ranks wait for each other
    assert forecast(0) == whole  # not recorded
    assert forecast(0, 1.0, 1.0) == whole
    assert forecast(2, 0.003, 0.004) == whole  # workers slow the step, too


def test_a_fused_optimizer_saves_no_more_than_optimizers_take_on_cpus():
    def forecast(of):
        return next(
            each.forecast
            for each in propose_changes(replace(of, update_seconds=0.003))[0]
            if each.name == "fused"
        )

    assert forecast(facts()) == 0.003
    assert (forecast(facts(device="cuda")) or 0) > 0.05  # there steps of optimizers are only queued


@pytest.mark.parametrize(("cpu_seconds", "by_cores"), [(0.09, True), (0.001, False)])
def test_more_workers_than_twice_the_cores_are_tried_only_where_making_waits(cpu_seconds, by_cores):
    # GIVEN two cores a rank and batches that take 0.1 s to make, by work or by waiting
    built = facts()
    blocks = [
        replace(each, fetch_seconds=0.1, fetch_cpu_seconds=cpu_seconds)
        for each in built.case.profile.blocks
    ]
    profile = built.case.profile.model_copy(update={"blocks": tuple(blocks)})
    found = Facts(Case(built.case.breakdown, profile), built.sites, "mine", 1)
    most = 2 * max(1, found.cores // found.ranks)
    # WHEN the advice needs sixteen workers
    monkeypatched = pytest.MonkeyPatch()
    sixteen = SimpleNamespace(asks=SimpleNamespace(workers=16))
    monkeypatched.setitem(loader_changes.REMEDIES, "prep", lambda case: [sixteen])
    try:
        tried = {each.writes["num_workers"] for each in propose_changes(found, ["workers"])[0]}
    finally:
        monkeypatched.undo()
    # THEN they are tried only where waiting can be done by many at once
    assert max(tried) == (most if by_cores else 16)


def test_numbers_of_64_bits_are_not_cast_by_autocast():
    assert "64 bits" in why(facts(device="cuda:0", precision="float64"), "bfloat16")


def copies(**values):
    """A copy in every step of a hundred."""
    return Site(
        "copy",
        "c",
        "/home/me/train.py",
        9,
        9,
        0,
        9,
        {"non_blocking": False, "pinned": False, **values},
        100,
    )


def test_pinning_writes_copies_that_do_not_wait_where_the_script_itself_makes_them():
    built = facts(device="cuda", ranks=1)

    def pins(copy):
        found = replace(built, sites=(*built.sites, copy), steps=100)
        return {each.name: each for each in propose_changes(found)[0] if each.knob == "pin"}

    own = pins(copies())["pin+non_blocking"]
    assert (own.copies, own.by_hand) == ((copies(),), "")
    others = replace(copies(), file="/x/site-packages/accelerate/utils.py")
    assert "non_blocking=True" in pins(others)["pin+non_blocking"].by_hand
    assert set(pins(copies(non_blocking=True))) == {"pin"}


def test_copies_of_pageable_batches_wait_whatever_they_are_asked():
    built = facts(device="cuda", ranks=1)

    def of(copy):
        return replace(built, sites=(*built.sites, copy), steps=100)

    assert why(of(copies()), "non_blocking").startswith("no copies of pinned batches")
    assert "non_blocking" in names(of(copies(pinned=True)))


def test_what_lies_outside_the_script_is_forecast_of_stalls_that_are_shown_only():
    def advice(rounds):
        times = flat(rounds, solo=0.1, crowd=0.1, node=0.1, warm=0.2, cold=0.2)
        loaders = (Loader(kind="map", workers=2, samples=1000),)
        profile = build(times, ranks=1, workload={"loaders": loaders})
        return _list_advice(Case(attribute(profile), profile), [])

    assert any("Make samples cheaper" in each for each in advice(3))
    assert advice(1) == ()  # without intervals


def of_workers(took=(), threads=None, device="cpu", **loader):
    """A job of eight cores whose two workers were counted."""
    settings = {**LOADER, "num_workers": 2}
    loaders = (
        Loader(
            kind="map",
            workers=2,
            samples=1000,
            **{"in_order": True, "start_method": "fork", **loader},
        ),
    )
    built = facts(loader=settings, ranks=1, device=device)
    counted = WorkerTimes(
        feed="warm", rank=0, round=0, batches=(20,), seconds=(1.0,), took=took, threads=threads
    )
    workload = built.case.profile.workload.model_copy(update={"loaders": loaders})
    profile = built.case.profile.model_copy(update={"workers": (counted,), "workload": workload})
    return replace(built, case=Case(built.case.breakdown, profile))


RARELY_SLOW = (*(0,) * 9, 90, 0, 0, 0, 0, 10)
"""Ninety batches of about 24 ms, ten of about 760: a step trains for 100."""


def test_batches_are_handed_out_of_order_where_some_take_long_and_the_others_wait_for_them():
    of = of_workers(RARELY_SLOW)
    (change,) = propose_changes(of, ["in_order"])[0]
    assert (change.writes, change.effect, change.needs_workers) == (
        {"in_order": False},
        "order",
        True,
    )
    assert 0 < (change.forecast or 0) < (of.most_seconds("prep") or 0)
    # AND where all take as long nothing is saved by it
    (even,) = propose_changes(of_workers((0, 0, 0, 0, 0, 100)), ["in_order"])[0]
    assert even.forecast == pytest.approx(0.0, abs=1e-3)
    # AND where too few were timed it may save all that steps wait
    unknown = of_workers()
    assert [each.forecast for each in propose_changes(unknown, ["in_order"])[0]] == [
        unknown.most_seconds("prep")
    ]
    assert why(of_workers(RARELY_SLOW, in_order=False), "in_order") == "already set"
    assert (
        why(of_workers(RARELY_SLOW, in_order=None), "in_order")
        == "PyTorch has no in_order before 2.6"
    )
    assert why(facts(), "in_order") == "one batch is made at a time"


def test_workers_are_forked_only_where_nothing_of_a_gpu_is_in_them():
    def of(method, **more):
        return replace(of_workers(start_method=method, **more), epoch_seconds=0.02)

    (change,) = propose_changes(of("spawn"), ["start_method"])[0]
    assert (change.writes, change.effect, change.forecast) == (
        {"multiprocessing_context": "fork"},
        "none",
        0.02,
    )
    assert change.new_value == "multiprocessing_context fork"
    assert why(of("fork"), "start_method") == "workers are forked already"
    assert names(of("forkserver", device="cuda", on_device=False), "start_method") == {"fork"}
    for on_device in (True, None):
        assert "GPU" in why(of("spawn", device="cuda", on_device=on_device), "start_method")
    assert why(replace(of("spawn"), epoch_seconds=None), "start_method").startswith(
        "no epoch ended"
    )


def test_workers_get_a_thread_each_where_theirs_are_more_than_cores():
    (change,) = propose_changes(of_workers(threads=5), ["worker_threads"])[0]
    assert change.settings == {"loader": {"one_thread": True, "site": "mine"}}
    assert change.new_value == "threads of a loader worker 1"
    assert (
        why(of_workers(threads=4), "worker_threads")
        == "there are cores for the threads of all workers"
    )
    assert (
        why(of_workers(threads=1), "worker_threads")
        == "there are cores for the threads of all workers"
    )
    assert "not seen" in why(of_workers(), "worker_threads")


def of_collector():
    """A job that looks for garbage for a tenth of a step of 100 ms."""
    built = facts()
    row = RunRow(name=COLLECTOR, time=Interval(value=0.01, low=0.008, high=0.012))
    run = RunAccount(rows=(row,), step_seconds=0.2, epoch_steps=None, startup_seconds=1.0)
    breakdown = built.case.breakdown.model_copy(update={"run": run})
    return replace(built, case=Case(breakdown, built.case.profile))


def test_the_collector_is_let_rest_where_it_takes_time():
    assert "no time that was seen" in why(facts(), "collector")
    found = {each.name: each for each in propose_changes(of_collector())[0]}
    seldom = found["collector=seldom"]
    frozen = found["collector=frozen"]
    assert (seldom.forecast, seldom.settings) == (0.012, {"collector": {"every": 100}})
    assert frozen.settings == {"collector": {"every": 0}}
    assert seldom.line.endswith("register_optimizer_step_post_hook(SeldomCollected(100))")
    assert "import sys" not in seldom.line


def test_an_optimizer_without_a_fused_form_updates_its_parameters_together_on_cpus():
    def of(device, **values):
        built = facts(device=device)
        known = {"class": "RMSprop", "takes": ["capturable", "foreach"], "foreach": None, **values}
        return replace(
            built, sites=(Site("optimizer", "o", "/home/me/train.py", 5, 5, 0, 9, known),)
        )

    (change,) = propose_changes(of("cpu"), ["fused"])[0]
    assert (change.writes, change.settings) == ({"foreach": True}, {"optimizer": {"foreach": True}})
    assert why(of("cpu", foreach=True), "fused") == "already set"
    # there it is what PyTorch takes by itself
    assert why(of("cuda"), "fused") == "the optimizer has no fused form"


def test_evaluations_workers_are_kept_where_starting_them_was_seen_twice():
    validating = {**LOADER, "num_workers": 2, "same_data": 2}
    site = Site("loader", "val", "/home/me/train.py", 9, 9, 0, 9, validating)
    of = replace(facts(), sites=(*facts().sites, site), evaluations={"val": 0.02})
    (change,) = propose_changes(of, ["evaluation"])[0]
    assert change.settings == {"evaluation": {"val": {"persistent_workers": True}}}
    assert (change.forecast, change.effect, change.leads) == (0.02, "order", True)
    assert "twice" in why(replace(of, evaluations={}), "evaluation")
    # AND not where it is made again each time, has no workers, or keeps them
    for other in (
        replace(site, calls=3),
        replace(site, values=LOADER),
        replace(site, values={**validating, "persistent_workers": True}),
    ):
        assert "made again" in why(replace(of, sites=(*facts().sites, other)), "evaluation")


def test_denormal_values_are_flushed_where_the_profile_saw_some():
    (change,) = propose_changes(facts(vanished_values=9), ["denormals"])[0]
    assert (change.line, change.effect) == ("torch.set_flush_denormal(True)", "rounding")
    assert "were seen" in why(facts(), "denormals")


def test_threads_are_set_by_a_line_where_the_script_writes_the_variable_itself():
    def threads_changes(of):
        found = propose_changes(replace(of, threads=1), ["threads"])[0]
        return [(each.line, dict(each.variables)) for each in found]

    of = of_workers()
    assert {line for line, _ in threads_changes(of)} == {""}
    own = threads_changes(replace(of, sets_threads=True))
    assert own == [("torch.set_num_threads(4)", {}), ("torch.set_num_threads(8)", {})]


def with_rows(*rows):
    run = RunAccount(rows=rows, step_seconds=0.25, epoch_steps=None, startup_seconds=1.0)
    built = facts().case
    return Case(built.breakdown.model_copy(update={"run": run}), built.profile)


def row(name, seconds, every=None):
    each = None if every is None else Interval(value=seconds * every)
    time = Interval(value=seconds, low=0.9 * seconds, high=1.1 * seconds)
    return RunRow(name=name, time=time, share=seconds / 0.25, each=each, every=every)


@pytest.mark.parametrize(
    ("saved", "knob", "begins"),
    [
        (None, "", "The script's own code between steps takes 100 ms"),
        (0.2, "", ""),
        (0.05, "", "The script's own code"),
        (None, LOOP, "Checkpoints take"),
    ],
    ids=["nothing saved", "more is saved", "less is saved", "a change acts on it"],
)
def test_what_no_setting_changes_is_told_where_it_is_more_than_is_saved(saved, knob, begins):
    case = with_rows(row(LOOP, 0.1), row(CHECKPOINT, 0.04, every=25.0))
    together = None if saved is None else Interval(value=saved)
    acts = SimpleNamespace(change=SimpleNamespace(stalls=(knob,)))
    search = SimpleNamespace(candidates={knob: acts}, final=Final(together=together))
    text = _describe_by_hand(case, search)
    assert text.startswith(begins)
    assert bool(text) == bool(begins)


def test_a_launch_is_long_enough_for_what_comes_now_and_then():
    assert _launch_seconds(with_rows(row(LOOP, 0.1))) == pytest.approx(4.0)
    # of a step of 0.25 s, an evaluation every 20 steps: two and a half of them
    assert _launch_seconds(with_rows(row(EVALUATION, 0.1, every=20.0))) == pytest.approx(12.5)
    assert _launch_seconds(with_rows(row(EPOCH_START, 0.1, every=200.0))) == 15.0
    assert _launch_seconds(with_rows(row(EPOCH_START, 0.001, every=20.0))) == pytest.approx(4.0)
