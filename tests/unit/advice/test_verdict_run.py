"""What takes most of an epoch, in and between steps: what is claimed of it, said of it, and done about it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from breakdowns import advice_for, flat
from profile_builder import build, ledger

from stash.advice.case import Case, Remedy
from stash.advice.remedies import REMEDIES
from stash.advice.verdict import Advice
from stash.analysis.attribution import attribute
from stash.core.ladder import UNTOUCHED
from stash.core.records.parallel import EmbeddingTable
from stash.core.records.profile import Block, Gradient, Loader, Operator, Profile
from stash.core.records.rank_ledger import LedgerPlace

STEP = flat(6, solo=0.020, warm=0.0202)
RESTARTED = Loader(kind="map", workers=2, persistent_workers=False)
STARTS = {"epoch start": {0: 1.2, 20: 1.07, 40: 1.07, 60: 1.07}}


def job(*ledgers, times=STEP, ranks=1, loader=RESTARTED, work=None, **fields) -> Profile:
    workload = {"loaders": (loader,), **(work or {})}
    return build(times, ranks=ranks, workload=workload, ledgers=ledgers, **fields)


def at(
    row: str, line: int, text: str, seconds: float = 0.0, each: float | None = None
) -> LedgerPlace:
    return LedgerPlace(row=row, file="train.py", line=line, text=text, seconds=seconds, each=each)


def advice(*ledgers, **fields) -> Advice:
    return advice_for(job(*ledgers, **fields))


def remedies(row: str, *ledgers, **fields) -> Mapping[str, Remedy]:
    profile = job(*ledgers, **fields)
    return {remedy.name: remedy for remedy in REMEDIES[row](Case(attribute(profile), profile))}


# Verdicts


def test_epoch_starts_lead_with_how_often_why_and_where():
    place = at("epoch start", 57, "for x, y in loader:", each=1.07)
    found = advice(ledger(epoch_steps=20, now_and_then=STARTS, places=(place,)))
    assert (found.kind, found.stall, found.stalls) == ("run", "epoch start", ("epoch start",))
    assert found.text == (
        "Epoch starts take 1.07 s before every 20 steps (73% of an epoch): its loader's 2 workers are restarted each "
        "time (train.py:57)."
    )
    assert found.next_steps[0] == (
        "Keep the loader's workers from epoch to epoch with persistent_workers=True; saves about 53.5 ms a step (73% "
        "of an epoch). `stash fix` can try it."
    )


def test_a_loader_without_workers_waits_for_its_sampler():
    loader = Loader(kind="map", workers=0)
    found = advice(ledger(epoch_steps=20, now_and_then=STARTS), loader=loader)
    assert "its loader has no workers, so this is its sampler, and its first batch." in found.text
    assert "`torch.randperm`" in found.next_steps[0]
    assert "persistent_workers" not in " ".join(found.next_steps)


def test_a_loader_that_is_made_again_for_each_epoch_is_to_be_made_once():
    loader = Loader(kind="map", workers=2, persistent_workers=True, remade=True)
    place = at("epoch start", 40, "for x, y in loader:", each=1.07)
    found = advice(ledger(epoch_steps=20, now_and_then=STARTS, places=(place,)), loader=loader)
    assert "a new loader is made each time, which starts 2 workers (train.py:40)." in found.text
    assert found.next_steps[0].startswith(
        "Make the loader once, outside the loop over epochs (train.py:40), with"
    )


def test_the_loop_leads_with_its_line():
    places = (at("loop", 88, "metric.update(out, y)", 0.016 * 14.2),)
    found = advice(ledger(a_step={"forward": 0.004, "loop": 0.015}, places=places))
    assert (found.kind, found.stall) == ("run", "loop")
    assert found.text == (
        "The script's own code between steps takes 15.0 ms of every 20.2 ms step (74% of an epoch), most of it at "
        "train.py:88 `metric.update(out, y)`."
    )


def test_a_line_that_trains_a_whole_step_is_not_to_run_less_often():
    # GIVEN a trainer that is called in one line: loop, forward and backward pass all belong to it
    call = "Trainer(model, data).train()"
    places = (
        at("loop", 9, call, seconds=0.3),
        at("forward", 9, call, seconds=1.0),
        at("backward", 9, call, seconds=2.0),
    )
    found = remedies("loop", ledger(a_step={"loop": 0.006}, places=places))
    assert list(found) == ["seldom"]
    assert "train.py:9" not in found["seldom"].text
    assert "between the optimizer's step and the next batch" in found["seldom"].text


def test_a_loop_of_one_rank_is_said_to_hold_up_all():
    times = flat(6, solo=0.050, crowd=0.050, node=0.052, warm=0.052)
    slow, fast = ledger(0, a_step={"loop": 0.040}), ledger(1, a_step={"loop": 0.001})
    found = advice(slow, fast, times=times, ranks=2)
    assert found.stall == "loop"
    assert "on rank 0, for which all others wait." in found.text


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("evaluation", "Evaluation takes 2.00 s after every 20 steps (83% of an epoch)."),
        ("checkpoint", "Checkpoints take 2.00 s after every 20 steps (83% of an epoch)."),
    ],
)
def test_what_comes_now_and_then_leads(name, begins):
    found = advice(ledger(epoch_steps=20, now_and_then={name: {20: 2.0, 40: 2.0, 60: 2.0}}))
    assert (found.stall, found.text) == (name, begins)


def test_the_collector_leads():
    found = advice(ledger(now_and_then={"collector": dict.fromkeys(range(84, 100), 0.015)}))
    assert (
        found.text
        == "Python's garbage collector takes 15.0 ms of every 20.2 ms step (74% of an epoch)."
    )


def test_what_was_seen_once_leads_only_by_half_of_itself():
    """A start of 0.7 s every 20 steps is 35 ms of each, more than the step's 20.2; half of it is not."""
    found = advice(ledger(epoch_steps=20, now_and_then={"epoch start": {0: 0.7}}))
    assert found.kind == "cannot tell"
    assert found.text == (
        "Cannot tell yet what takes most of an epoch: epoch start and compute. Epoch starts take 700 ms before every "
        "20 steps, seen once (63% of an epoch): its loader's 2 workers are restarted each time."
    )
    assert found.next_steps[0].startswith("Against epoch start: keep the loader's workers")
    assert (
        advice(ledger(epoch_steps=20, now_and_then={"epoch start": {0: 2.1}})).stall
        == "epoch start"
    )


def test_compute_is_what_is_left_without_the_loop_and_others_are_named_beside_it():
    found = advice(ledger(epoch_steps=20, a_step={"loop": 0.006}, now_and_then={}))
    assert found.kind == "compute"
    assert found.text.startswith("Compute takes 14.00 ")
    assert "of every 20.20 ms step (69.3%)" in found.text
    assert found.text.endswith(
        "The script's own code between steps takes 6.00 ms of every 20.2 ms step (30% of an epoch)."
    )
    assert "no obstacle" not in found.text
    assert found.next_steps[0].startswith("Against loop: look at what the script does")


def test_a_stall_leads_and_epoch_starts_are_named_beside_it():
    times = flat(6, solo=0.020, warm=0.100)
    found = advice(ledger(epoch_steps=20, now_and_then=STARTS), times=times)
    assert (found.kind, found.stall) == ("stall", "prep")
    assert found.text.startswith("The prep stall takes 80.0 ")
    assert "Epoch starts take 1.07 s before every 20 steps (35% of an epoch)" in found.text
    assert "not known yet" not in found.text
    assert found.next_steps[1].startswith("Against epoch start: keep the loader's workers")


def test_a_stall_is_named_with_the_line_that_waits_for_it():
    places = (
        at("input", 38, "for x, y in loader:", 16 * 0.05),
        at("backward", 41, "loss.backward()", 16 * 0.01),
    )
    found = advice(ledger(places=places), times=flat(6, solo=0.020, warm=0.100))
    assert "ms step (80.0%) at train.py:38 `for x, y in loader:`" in found.text
    times = flat(6, solo=0.020, crowd=0.020, node=0.050, warm=0.0502)
    assert (
        "at train.py:41 `loss.backward()`"
        in advice(ledger(0, places=places), times=times, ranks=2).text
    )


def test_a_line_within_a_function_is_named_with_where_the_loop_called_it():
    place = at("loop", 21, "order = scores.argsort()", 16 * 0.012).model_copy(
        update={"caller": "train.py:43"}
    )
    found = advice(ledger(a_step={"loop": 0.012}, places=(place,)))
    assert (
        "most of it at train.py:21 `order = scores.argsort()`, called at train.py:43." in found.text
    )


def test_two_rows_between_steps_that_may_both_be_the_largest_tie():
    starts, evaluations = {0: 1.0, 20: 1.0, 40: 1.3, 60: 1.15}, {20: 1.1, 40: 1.1, 60: 1.1}
    found = advice(
        ledger(epoch_steps=20, now_and_then={"epoch start": starts, "evaluation": evaluations})
    )
    assert (found.kind, found.stalls) == ("run", ("epoch start", "evaluation"))
    assert found.text.endswith(
        "Evaluation takes 1.10 s after every 20 steps (41% of an epoch). Which is the largest is not known yet."
    )
    assert [step.partition(":")[0] for step in found.next_steps[:2]] == [
        "Against epoch start",
        "Against evaluation",
    ]


def test_a_stall_is_no_heading_where_rows_between_steps_are_larger_for_certain():
    """Prep is 8 ms of a step, epoch starts are 18.5; compute may be as long as these."""
    times = flat(6, solo=0.020, warm=0.028)
    starts = {"epoch start": {0: 0.4, 20: 0.36, 40: 0.38, 60: 0.40}}
    found = advice(ledger(epoch_steps=20, now_and_then=starts), times=times)
    assert (found.kind, found.stall) == ("cannot tell", None)
    assert "Cannot tell yet what takes most of an epoch: compute and epoch start." in found.text
    assert "Certain is prep: 8.00 " in found.text


def test_steps_that_vary_by_more_than_themselves_have_no_verdict_not_even_compute():
    times = {"solo": [0.001, 0.060, 0.002, 0.050], "warm": [0.001, 0.060, 0.002, 0.050]}
    for found in (
        advice(times=times),
        advice(ledger(epoch_steps=20, now_and_then=STARTS), times=times),
    ):
        assert (found.kind, found.stall) == ("cannot tell", None)
        assert found.text.startswith(
            "Cannot tell: steps vary too much. A step takes 28.25 ms, but its parts are only known"
        )
        assert "Compute takes" not in found.text
        assert any(
            "Stop other work on this machine and profile again" in step for step in found.next_steps
        )
    # of the second
    assert found.next_steps[0].startswith("Against epoch start: keep the loader's workers")


# First steps that differ


def with_first_steps(profile: Profile, seconds: float, **fields: float) -> Profile:
    steps = tuple(seconds + 0.0001 * (at % 3) for at in range(10))
    typed = Block(
        round=0,
        rung=UNTOUCHED.name,
        rank=0,
        steps=10,
        seconds=sum(steps),
        step_seconds=steps,
        **fields,
    )
    return profile.model_copy(update={"blocks": (typed, *profile.blocks)})


def test_first_steps_that_differ_by_what_no_row_has_leave_no_verdict_but_a_remedy_of_what_is_certain():
    """What lies between steps is in none of them: 0.1 s before every 20 steps explains no longer step."""
    starts = {"epoch start": {0: 0.12, 20: 0.1, 40: 0.1, 60: 0.1}}
    found = advice_for(with_first_steps(job(ledger(epoch_steps=20, now_and_then=starts)), 0.0302))
    assert found.kind == "cannot tell"
    assert "is not the job as it runs" in found.text
    assert found.next_steps[0].startswith("Against epoch start: keep the loader's workers")
    assert advice_for(with_first_steps(job(), 0.0302)).kind == "cannot tell"


def test_first_steps_that_differ_by_the_scripts_own_code_leave_the_verdict_too():
    """Logging is taken out while blocks are measured: 12 ms between steps as typed, of which blocks have 2."""
    profile = with_first_steps(job(ledger(a_step={"forward": 0.018, "loop": 0.012})), 0.0302)
    run = attribute(profile).run
    assert run.row("compute").seconds == pytest.approx(0.018, abs=0.0002)
    assert run.step_seconds == pytest.approx(0.0302, abs=0.0002)
    found = advice_for(profile)
    assert found.kind == "compute"
    assert "own code between steps takes 12.0 ms" in found.text
    waiting = with_first_steps(job(ledger(a_step={"loop": 0.012})), 0.0302, wait_seconds=10 * 0.010)
    assert advice_for(waiting).kind == "cannot tell"


def test_what_takes_more_than_the_whole_step_as_typed_leads_whatever_was_measured():
    found = advice_for(with_first_steps(job(ledger(epoch_steps=20, now_and_then=STARTS)), 0.040))
    assert found.stall == "epoch start"
    assert (
        advice_for(with_first_steps(job(ledger(epoch_steps=20, now_and_then=STARTS)), 0.060)).kind
        == "cannot tell"
    )


@pytest.mark.parametrize(
    ("waited", "stall"), [(0.040, "prep"), (0.030, None)], ids=["half-of-it", "less"]
)
def test_first_steps_that_wait_for_data_half_of_the_time_leave_prep_however_the_rest_differs(
    waited, stall
):
    profile = job(times=flat(6, solo=0.020, warm=0.100))
    typed = with_first_steps(profile, 0.070, wait_seconds=10 * waited)
    assert attribute(typed).is_other_job
    assert advice_for(typed).stall == stall


@pytest.mark.parametrize(
    ("waited", "stall"), [(0.012, "interconnect"), (0.006, None)], ids=["most-of-it", "less"]
)
def test_first_steps_that_wait_for_collectives_as_measured_ones_do_leave_interconnect(
    waited, stall
):
    profile = build(flat(6, solo=0.005, crowd=0.005, node=0.030, warm=0.0302), ranks=2)
    steps = tuple(0.020 + 0.0001 * (at % 3) for at in range(10))
    stages = {"exchange": 10 * waited / 3, "collective": 20 * waited / 3}
    typed = [
        Block(
            0,
            UNTOUCHED.name,
            rank,
            steps=10,
            seconds=sum(steps),
            step_seconds=steps,
            stage_seconds=stages,
        )
        for rank in range(2)
    ]
    found = profile.model_copy(update={"blocks": (*typed, *profile.blocks)})
    assert attribute(found).as_typed.contradicts
    assert advice_for(found).stall == stall


def test_a_stall_that_leads_by_more_than_first_steps_differ_leads_and_says_by_how_much_they_do():
    """Contention of 30 of 38 ms; as typed 33, so 5 ms more or less, and the others have 8 at most."""
    profile = build(flat(6, solo=0.001, crowd=0.031, node=0.038, warm=0.038), ranks=2)
    steps = tuple(0.033 + 0.0001 * (at % 3) for at in range(10))
    typed = [
        Block(0, UNTOUCHED.name, rank, steps=10, seconds=sum(steps), step_seconds=steps)
        for rank in range(2)
    ]
    found = advice_for(profile.model_copy(update={"blocks": (*typed, *profile.blocks)}))
    assert found.stall == "contention"
    assert "as it was typed took 33.1 ms" in found.text


# Remedies


def test_workers_that_are_forked_are_not_told_to_fork():
    starts = ledger(epoch_steps=20, now_and_then=STARTS)
    spawned, forked = (
        RESTARTED.model_copy(update={"start_method": each}) for each in ("spawn", "fork")
    )
    assert "pickle" in remedies("epoch start", starts, loader=spawned)
    assert set(remedies("epoch start", starts, loader=forked)) == {"persistent"}


def test_an_iterator_for_each_step_is_made_once():
    found = remedies(
        "epoch start", ledger(now_and_then={"epoch start": dict.fromkeys(range(20), 0.03)})
    )
    assert found["one-iterator"].text.startswith("Keep one iterator, `batches = iter(loader)` once")
    assert "one-iterator" not in remedies(
        "epoch start", ledger(epoch_steps=20, now_and_then=STARTS)
    )


def test_a_sampler_is_drawn_with_vectorised_code_at_its_line():
    place = at("epoch start", 31, "return sorted(self.weights)", each=1.07)
    found = remedies(
        "epoch start",
        ledger(epoch_steps=20, now_and_then=STARTS, places=(place,)),
        loader=Loader(kind="map", workers=0),
    )
    assert list(found) == ["sampler"]
    assert "(train.py:31)" in found["sampler"].text
    assert found["sampler"].saves == pytest.approx(1.07 / 20)


def test_half_as_many_evaluations_save_half():
    found = remedies(
        "evaluation", ledger(epoch_steps=20, now_and_then={"evaluation": {20: 2.0, 40: 2.0}})
    )
    assert found["evaluate-less"].saves == pytest.approx(0.05)
    assert found["evaluate-less"].text == "Evaluate half as often, every 40 steps"
    assert "persistent_workers=True" in found["evaluation-workers"].text
    assert found["evaluation-workers"].saves is None


def test_a_checkpoint_beside_training_leaves_the_copy_of_its_state():
    work = {"parameter_bytes": 100_000_000, "optimizer_bytes": 200_000_000}
    found = remedies(
        "checkpoint", ledger(now_and_then={"checkpoint": {25: 2.0, 50: 2.0}}), work=work
    )
    assert found["async-checkpoint"].saves == pytest.approx((2.0 - 0.3) / 25)
    assert found["save-less"].saves == pytest.approx(0.04)
    unknown = remedies("checkpoint", ledger(now_and_then={"checkpoint": {25: 2.0, 50: 2.0}}))
    assert unknown["async-checkpoint"].saves is None


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("total += loss.item()", "item", "`.detach()`"),
        ("metrics.update(out, y)", "metric", "on the device, every 10 steps"),
        ("writer.add_scalar('loss', loss)", "log", "logs every 10 steps"),
        ("time.sleep(0.01)", "seldom", "or in a thread"),
    ],
)
def test_what_a_line_says_is_done_less_often(text, name, words):
    place = at("loop", 88, text, seconds=0.16)
    found = remedies("loop", ledger(a_step={"loop": 0.010}, places=(place,)))
    assert list(found) == [name]
    assert found[name].saves == pytest.approx(0.009)  # of 10 ms a step nine tenths
    assert words in found[name].text
    assert "train.py:88" in found[name].text


def test_code_between_batch_and_model_belongs_into_the_loader():
    place = at("loop", 16, "ids = tokenize(texts)", seconds=0.16).model_copy(
        update={"prepares": True}
    )
    measured = ledger(a_step={"loop": 0.010}, places=(place,))
    found = remedies("loop", measured)
    assert list(found) == ["prepare-ahead"]
    assert found["prepare-ahead"].saves is None
    assert (
        "train.py:16 `ids = tokenize(texts)` into the data set or its `collate_fn`"
        in found["prepare-ahead"].text
    )
    text = advice(ledger(a_step={"loop": 0.019}, places=(place,))).text
    assert text.startswith("The script's own code between batch and model takes 19.0 ms of every")
    without = remedies("loop", measured, work={"loaders": ()})
    assert "a DataLoader with workers, or several threads" in without["prefetch"].text


def test_a_collector_that_is_frozen_saves_all_and_one_every_100_steps_the_most():
    found = remedies(
        "collector",
        ledger(steps=100, timed_steps=100, now_and_then={"collector": {10: 0.1, 20: 0.1, 30: 0.1}}),
    )
    assert found["gc-freeze"].saves == pytest.approx(0.003)
    assert found["gc-every"].saves == pytest.approx(0.003 - 0.001)


def test_rows_that_were_not_seen_have_no_remedy():
    for row in ("epoch start", "evaluation", "checkpoint", "loop", "collector"):
        assert remedies(row) == {}


# Compute


def test_on_cpus_compute_is_given_threads_and_settings_and_no_other_machine():
    text = " ".join(advice(work={"precision": "float32"}).next_steps)
    assert "`torch.set_num_threads` (8 cores per rank here). `stash fix` can try it." in text
    assert "`stash fix --try compile` can try it" in text
    assert 'torch.autocast("cpu", torch.bfloat16)' in text
    assert "Rent" not in text
    convolutions = (Operator(operator="aten.convolution", shapes="", dtype="float32", calls=1),)
    text = " ".join(advice(work={"operators": convolutions}).next_steps)
    assert "`stash fix --try channels_last` can try it" in text


@pytest.mark.parametrize(("busy", "rent"), [(0.97, True), (0.5, False), (None, False)])
def test_faster_devices_are_advised_where_these_are_shown_to_be_busy(busy, rent):
    extra = {} if busy is None else {"resident": {"gpu": busy}, "solo": {"gpu": busy}}
    times = flat(6, resident=0.0199, solo=0.020, warm=0.0202)
    profile = job(times=times, device="cuda", work={"precision": "bfloat16"}, block_extra=extra)
    text = " ".join(
        remedy.text for remedy in REMEDIES["compute"](Case(attribute(profile), profile))
    )
    assert ("Rent devices that compute faster: these are busy 97% of the time" in text) == rent


def test_collectives_that_the_script_calls_are_the_reason_of_the_exchange_and_sent_less_often():
    """Of 30 ms that the exchange takes, 24 are the script's own calls in its loop: every 10 steps, 2.4 are left."""
    places = (at("collective", 43, "dist.barrier()", 16 * 0.024),)
    times = flat(6, solo=0.020, crowd=0.020, node=0.050, warm=0.0502)
    found = advice(ledger(0, places=places), ledger(1), times=times, ranks=2)
    assert (found.kind, found.stall) == ("stall", "interconnect")
    assert (
        "(59.8%) at train.py:43 `dist.barrier()`: most of it are collectives that the script calls"
        in found.text
    )
    assert found.next_steps[0].startswith(
        "Send what train.py:43 `dist.barrier()` exchanges every 10 steps"
    )
    assert "saves about 21.6 ms" in found.next_steps[0]
    few = advice(
        ledger(0, places=(at("collective", 43, "dist.barrier()", 16 * 0.001),)),
        times=times,
        ranks=2,
    )
    assert "barrier" not in f"{few.text} {few.next_steps}"


def test_a_thread_that_holds_the_interpreter_leads_and_goes_into_a_process_of_its_own():
    places = (at("interpreter", 19, "while True:", 16 * 0.015),)
    found = advice(ledger(a_step={"interpreter": 0.015}, places=places))
    assert (found.kind, found.stall) == ("run", "interpreter")
    assert found.text.startswith(
        "Waiting for Python's interpreter, which another thread of the script has, takes 15.0 ms"
    )
    assert found.next_steps[0].startswith(
        "Move what train.py:19 `while True:` computes to a process of its own"
    )


def test_values_that_became_denormal_are_to_be_flushed():
    found = advice(ledger(), work={"vanished_values": 1200})
    assert found.next_steps[0].startswith(
        "Call `torch.set_flush_denormal(True)` first of all: 1,200 values"
    )


TABLE = EmbeddingTable(
    rows=100_000,
    dimension=32,
    lookups=256,
    distinct=250,
    hottest=0.01,
    sparse=False,
    gradient_bytes=12_800_000,
)


@pytest.mark.parametrize(
    ("work", "name"),
    [
        ({"anomaly_mode": True}, "anomaly-mode"),
        ({"anomaly_mode": False}, None),
        ({"precision": "float64"}, "float32"),
        ({"embeddings": (TABLE,), "parameter_bytes": 13_000_000}, "sparse"),
        ({"embeddings": (TABLE,), "parameter_bytes": 30_000_000}, None),
        (
            {
                "embeddings": (TABLE.model_copy(update={"sparse": True}),),
                "parameter_bytes": 13_000_000,
            },
            None,
        ),
        (
            {
                "embeddings": (TABLE.model_copy(update={"distinct": 20_000}),),
                "parameter_bytes": 13_000_000,
            },
            None,
        ),
    ],
)
def test_what_makes_compute_long_for_certain_is_said_first(work, name):
    found = remedies("compute", ledger(), work=work)
    assert {each for each, remedy in found.items() if remedy.first} == ({name} if name else set())


def test_what_makes_compute_long_for_certain_is_said_where_noise_leaves_a_stall_open():
    times = {"solo": [0.020] * 6, "warm": [0.0202, 0.0302, 0.0202, 0.0302, 0.0202, 0.0302]}
    found = advice(ledger(), times=times, work={"anomaly_mode": True})
    assert found.kind == "cannot tell"
    assert found.next_steps[0].startswith("Leave out `torch.autograd.set_detect_anomaly(True)`")
    assert found.next_steps[1].startswith("Profile again")


def test_own_code_that_most_of_compute_is_leaves_no_word_of_compute():
    times = {"solo": [0.020] * 6, "warm": [0.0202, 0.0302, 0.0202, 0.0302, 0.0202, 0.0302]}
    places = (at("loop", 25, "total += p.grad.norm().item()", 16 * 0.030),)
    found = advice(ledger(a_step={"loop": 0.0101}, places=places), times=times)
    assert "Compute is most" not in found.text
    assert "Against loop: treat all gradients at once at train.py:25" in found.next_steps[0]
    assert "saves about 9.09 ms" in found.next_steps[0]


def test_a_line_that_logs_gradients_is_to_log_less_often():
    places = (at("loop", 25, "writer.add_histogram(name, p.grad, step)", 16 * 0.010),)
    assert set(remedies("loop", ledger(a_step={"loop": 0.010}, places=places))) == {"log"}


def test_an_update_that_is_mostly_the_scripts_own_lines_is_no_optimizer_that_walks():
    gradients = tuple(Gradient(name=str(number), bytes=4) for number in range(60))
    stages = {"solo": {"stage_seconds": {"optimizer": 10 * 0.006}}}
    seen = ledger(a_step={"loop": 0.0055, "optimizer": 0.0005, "forward": 0.014})
    found = advice(seen, block_extra=stages, work={"gradients": gradients})
    assert "foreach" not in " ".join(found.next_steps)


def test_a_collection_that_the_script_asks_for_is_to_be_left_out():
    places = (at("collector", 34, "gc.collect()", 0.2),)
    found = advice(
        ledger(now_and_then={"collector": dict.fromkeys(range(84, 100), 0.015)}, places=places)
    )
    assert found.next_steps[0].startswith(
        "Leave out train.py:34 `gc.collect()`, or call it every 100 steps"
    )
    assert "freeze" not in " ".join(found.next_steps)


def test_an_optimizer_that_walks_over_many_parameters_is_to_take_them_at_once():
    gradients = tuple(Gradient(name=str(number), bytes=4) for number in range(60))
    stages = {"solo": {"stage_seconds": {"optimizer": 10 * 0.006}}}
    many = advice(ledger(), block_extra=stages, work={"gradients": gradients})
    assert (
        "fused=True or foreach=True: it takes 30% of a step, for 60 parameters"
        in many.next_steps[0]
    )
    few = advice(ledger(), block_extra=stages, work={"gradients": gradients[:9]})
    assert "foreach" not in " ".join(few.next_steps)
