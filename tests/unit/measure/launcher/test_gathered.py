"""What the agents told, gathered from several launches, as an artefact."""

from stash.core.measured import Block, Collective, Memory, Rank, Rate, Skipped, WorkerTimes
from stash.core.records.profile import Settings, Workload
from stash.measure.launcher.gathered import GatheredRun, disk_facts, samples_per_step
from stash.measure.protocol.messages import (
    HostsSeen,
    JobFacts,
    LadderChosen,
    LadderEnded,
    Noted,
    PhaseBegun,
    RoundDone,
    SoftwareSeen,
)

SETTINGS = Settings(
    precision=0.02, budget_seconds=60, rungs=("solo", "cold"), isolated=False, why=""
)
JOB = Workload(command=("train.py",), name="train.py")
KNOWN = {"settings": SETTINGS, "ended": "budget", "elapsed_seconds": 9.0}


def gathered_from(*messages):
    gathered = GatheredRun()
    for message in messages:
        gathered.add_message(message)
    return gathered


def test_every_message_finds_its_place_in_the_profile():
    gathered = gathered_from(
        PhaseBegun("warm-up"),
        Rank(0, 0, 0, "cpu", 2),
        HostsSeen([{"hostname": "here"}]),
        SoftwareSeen({"torch": "2.13"}),
        JobFacts(batch=8, parameters=5),
        LadderChosen(("solo", "cold"), {"crowd": "one device"}),
        Block(0, "cold", 0, 2, 1.0, samples=18, storage_bytes=1800, steal=0.1),
        Rate("warm", 0, 0, 16, 0.5),
        Collective("node", 2, 100, 0.01),
        Skipped("cluster", "one node"),
        Noted("odd"),
        Noted("odd"),
        JobFacts(batch=9),
        RoundDone(0, 3.0),
        LadderEnded("stopped"),
    )
    profile = gathered.profile(JOB, **KNOWN)
    assert (profile.workload.batch, profile.workload.parameters) == (9, 5)
    assert profile.workload.sample_disk_bytes == 100.0
    assert profile.hosts[0].steal_fraction == 0.1
    assert {item.rung for item in profile.skipped} == {"crowd", "cluster"}
    assert profile.notes == ("odd",)
    assert (profile.blocks[0].rung, profile.rates[0].samples, profile.collectives[0].bytes) == (
        "cold",
        16,
        100,
    )
    assert profile.software == {"torch": "2.13"}
    assert profile.ranks[0].cores == 2
    assert (gathered.rounds, gathered.end, gathered.phase.name) == (1, "stopped", "warm-up")


def test_what_hosts_of_machines_took_is_each_machines_own():
    gathered = gathered_from(
        HostsSeen([{"hostname": "one"}, {"hostname": "other"}, {"hostname": "unknown"}]),
        *(Rank(rank, rank, 0, "cpu") for rank in range(3)),
        Block(0, "cluster", 0, 2, 1.0, steal=0.0),
        Block(0, "cluster", 1, 2, 1.0, steal=0.2),
        Block(0, "cluster", 2, 2, 1.0),
    )
    hosts = gathered.profile(JOB, **KNOWN).hosts
    assert [host.steal_fraction for host in hosts] == [0.0, 0.2, None]


def test_a_reason_of_the_launchers_own_goes_before_the_agents():
    gathered = gathered_from(
        Rank(0, 0, 0, "cpu"), LadderChosen(("solo",), {"resident": "not asked for"})
    )
    gathered.excused["resident"] = "the script does not take them"
    (skipped,) = gathered.profile(JOB, **KNOWN).skipped
    assert skipped.why == "the script does not take them"


def test_samples_of_a_step_are_those_that_were_counted_on_average():
    def block(samples, steps=2):
        return Block(round=0, rung="solo", rank=0, steps=steps, seconds=1.0, samples=samples)

    # GIVEN accumulation that ramped up while the profile was taken
    assert samples_per_step([block(32), block(96), block(48, steps=1), block(None)]) == 35
    # THEN what was nowhere counted is not known from the blocks
    assert samples_per_step([block(None)]) is None


def cold(**facts):
    return Block(round=0, rung="cold", rank=0, steps=1, seconds=1.0, samples=10, **facts)


def test_a_data_set_is_what_its_samples_fetch_and_no_more_than_its_files_hold():
    # ten files, each a little less than a page
    files = cold(storage_bytes=40_960, file_bytes=32_000)
    assert disk_facts([files], [500]) == {"sample_disk_bytes": 4096, "dataset_bytes": 500 * 3200}
    # 128 kB are read around each row
    mapped = cold(storage_bytes=1_280_000, file_bytes=0, held_bytes=32_000_000)
    assert disk_facts([mapped, mapped], [8192]) == {
        "sample_disk_bytes": 128_000,
        "dataset_bytes": 32_000_000,
    }
    unseen = cold(storage_bytes=50_000)  # opened by C code
    assert disk_facts([unseen], [100]) == {"sample_disk_bytes": 5000, "dataset_bytes": 500_000}


def test_of_what_was_not_fetched_or_cannot_be_counted_nothing_is_said():
    warm = Block(round=0, rung="warm", rank=0, steps=1, seconds=1.0, samples=10, file_bytes=10**9)
    assert disk_facts([warm, cold(storage_bytes=0)], [500]) == {}
    assert disk_facts([cold(storage_bytes=50)], [None]) == {"sample_disk_bytes": 5}
    assert disk_facts([cold(storage_bytes=50)], [10, 10]) == {"sample_disk_bytes": 5}


def test_of_each_rank_the_most_memory_is_kept_whatever_launch_told_of_it():
    gathered = gathered_from(
        Memory(0, resident_bytes=10),
        Memory(0, allocated_bytes=5, resident_bytes=8),
        Memory(1, allocated_bytes=7),
        Memory(1, allocated_bytes=9),
    )
    assert gathered.profile(JOB, **KNOWN).memory == (
        Memory(rank=0, allocated_bytes=5, resident_bytes=10),
        Memory(rank=1, allocated_bytes=9),
    )


def test_what_workers_took_is_kept_block_by_block():
    gathered = gathered_from(WorkerTimes("warm", 0, 2, (4, 4), (0.12345678, 0.1)))
    kept = WorkerTimes(feed="warm", rank=0, round=2, batches=(4, 4), seconds=(0.12346, 0.1))
    assert gathered.profile(JOB, **KNOWN).workers == (kept,)


def test_what_one_launch_recorded_is_not_missing_because_another_could_not():
    row = {
        "operator": "aten.mm",
        "shapes": "2x2 2x2",
        "dtype": "float32",
        "calls": 1,
        "flops": 16.0,
        "bytes": 48,
    }
    gradient = {"name": "w", "bytes": 4, "ready_seconds": 0.0, "ready_steps": [0.0]}
    gathered = gathered_from(
        JobFacts(operators=[row], gradients=[gradient]),
        JobFacts(
            unrecorded={
                "operators": "not recorded: compiled",
                "ready_steps": "not recorded: one step",
            }
        ),
    )
    assert gathered.profile(JOB, **KNOWN).workload.unrecorded == {
        "ready_steps": "not recorded: one step"
    }
