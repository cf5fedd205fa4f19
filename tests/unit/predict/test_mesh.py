"""Meshes, splits and microbatches that a job did not have, from profiles whose waits are chosen by hand."""

import json
from dataclasses import replace
from datetime import date
from functools import lru_cache

import commands
import pytest
from profile_builder import build

from stash.advice.case import Case
from stash.advice.remedies import REMEDIES
from stash.analysis.attribution import attribute
from stash.catalog.layers import merge
from stash.core.artefact import save
from stash.core.errors import UserError
from stash.core.measured import Memory, StagePasses
from stash.core.records.host import Gpu
from stash.core.records.profile import GroupUse, MeshAxis, PipelineSchedule
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, TrainingWork
from stash.predict.changes import Alteration
from stash.predict.cluster import Network, NodeLinks, Target
from stash.predict.draws import Draws, Quantity, given_quantity
from stash.predict.forecasting import base_of, what_if
from stash.predict.mesh_shapes import Mesh, division_of, iter_meshes, read_mesh
from stash.whatif.sweep import meshes

RANKS, NODES = 8, 2
MESH = (
    MeshAxis(name="dp", ranks=2, across_nodes=True),
    MeshAxis(name="pp", ranks=2, across_nodes=False),
    MeshAxis(name="tp", ranks=2, across_nodes=False),
)
DIVIDED = dict.fromkeys(("solo", "crowd", "node"), "the model is divided among ranks")
FORWARD, BACKWARD, COUNT = 0.001, 0.002, 4
USES = (GroupUse(name="pipeline", kind="recv", ranks=2, across_nodes=False, calls=4, bytes=64),)
FAST = Quantity(value=1e9, low=0.9e9, high=1.1e9, origin="measured", source="a test")


def job(
    name="Schedule1F1B",
    layers=4,
    slow=1.0,
    tensor=0.008,
    **workload,
):
    """Two replicas (across nodes) of two stages of two ranks, four microbatches, in 100 ms a step.

    Stages take 12 ms each (the last ``slow`` times as long). Tensor groups wait 8 ms, data groups 20 ms.
    """
    profile = build(
        {"cluster": [0.1] * 3},
        ranks=RANKS,
        nodes=NODES,
        skipped=DIVIDED,
        device="cuda",
        host={"gpus": (Gpu(index=0, name="Tesla V100-SXM2-16GB", memory_bytes=16 * 2**30),)},
        workload={
            "mesh": MESH,
            "groups": USES,
            "parameter_bytes": 10**9,
            "optimizer_bytes": 2 * 10**9,
            "pipeline": PipelineSchedule(name=name, stages=2, ranks=2, microbatches=COUNT),
            **workload,
        },
        memory=(Memory(rank=0, allocated_bytes=6 * 10**9),),
    )
    waits = {"dp/all_reduce": 0.020, "tp/all_reduce": tensor, "pipeline/recv": 0.005}
    blocks = [
        replace(b, group_waits={key: took * b.steps for key, took in waits.items()})
        for b in profile.blocks
    ]
    rows = []
    for rank in range(RANKS):
        stage = rank // 2 % 2
        order = (
            "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3" if stage == 0 else "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"
        )
        took = [
            (FORWARD if "F" in each else BACKWARD) * (slow if stage else 1)
            for each in order.split()
        ]
        rows.append(
            StagePasses(
                rank=rank,
                round=0,
                rung="cluster",
                passes=(*order.split(), "rest"),
                seconds=(*took, 0.0) * 3,
                layers=(layers,),
            )
        )
    return profile.model_copy(update={"blocks": tuple(blocks), "passes": tuple(rows)})


@lru_cache(maxsize=8)
def base(name="Schedule1F1B", slow=1.0):
    found = base_of(job(name, slow=slow), draws=Draws(64))
    return replace(
        found, target=found.target.model_copy(update={"network": Network(bytes_per_second=FAST)})
    )


def predicted(found, **typed):
    forecast = what_if(found, Alteration(**{name: str(text) for name, text in typed.items()}))
    return {stall.name: round(stall.seconds * 1e3, 9) for stall in forecast.breakdown.stalls}


def near(value):
    """Compute and the bubble of another mesh are draws around what is said here."""
    return pytest.approx(value, rel=1e-3)


def test_without_tensor_groups_gradients_are_twice_as_many_and_their_groups_share_the_network():
    # data 4 x pipeline 2: groups of 4 ranks, 2 of each node; a rank holds twice the parameters: of all-reduces
    # 2 * 3/4 over 2 * 1/2 of twice the bytes is 3 times, and two neighbours have twice the network that one had
    # of 8 microbatches each of 4 replicas has 2: 12 ms / 2; messages are of half as many samples
    found = predicted(base(), mesh="data=4,pipeline=2")
    assert found == near(
        {"compute": 67, "bubble": 6, "contention": 0, "interconnect": 1, "network": 30}
    )


def test_what_an_exchange_takes_longer_shows_and_what_it_takes_less_hides_in_proportion():
    # of 25 ms under way 5 hide: of 50 still 5, of 12.5 a fifth
    profile = job()
    blocks = [
        replace(block, group_under_way={"dp/all_reduce": 0.025 * block.steps})
        for block in profile.blocks
    ]
    hiding = base_of(profile.model_copy(update={"blocks": tuple(blocks)}), draws=Draws(64))
    hiding = replace(hiding, target=base().target)
    for network, waited in (("0.5x", 45), ("2x", 10)):
        assert (
            predicted(hiding, mesh="data=2,pipeline=2,tensor=2", network=network)["network"]
            == waited
        )


def test_what_an_exchange_takes_beyond_its_bytes_over_a_known_network_does_not_grow_with_them():
    # a quarter of 1 GB/s for each of a node's four groups: 3.75 MB take 15 of 20 ms, at half of the rate 30
    use = GroupUse(
        name="dp", kind="all_reduce", ranks=2, across_nodes=True, calls=1, bytes=3_750_000
    )
    known = base_of(job(groups=(*USES, use)), draws=Draws(64))
    known = replace(known, target=base().target)
    assert predicted(known, mesh="data=2,pipeline=2,tensor=2", network="0.5x")["network"] == 35


def test_a_deeper_pipeline_idles_as_its_schedule_says():
    # pipeline 4 in a node of 4, data 2 across: 4 microbatches, 12 ms of work a rank: 12 * 3 / 4; a rank has half the
    # layers, twice their part: as many gradients, as before; messages of as many samples
    found = predicted(base(), mesh="data=2,pipeline=4")
    assert found == near(
        {"compute": 67, "bubble": 9, "contention": 0, "interconnect": 2, "network": 20}
    )


def test_groups_that_leave_their_node_get_its_part_of_the_network():
    # one replica: 8 microbatches, 12 * 3 / 8; messages of twice the samples, at half of 1 GB/s instead of 10, so 40
    # times 2 ms; tensor groups have half the layers of twice the samples; data groups are gone
    links = NodeLinks(
        bytes_per_second=FAST.model_copy(update={"value": 1e10, "low": None, "high": None})
    )
    linked = replace(base(), target=base().target.model_copy(update={"inside": links}))
    found = predicted(linked, mesh="pipeline=4,tensor=2")
    assert found == near(
        {"compute": 67, "bubble": 4.5, "contention": 0, "interconnect": 8, "network": 80}
    )


def test_what_the_last_stage_computes_besides_its_layers_makes_a_deeper_pipeline_idle_more():
    # stages of 12 and 18 ms: layers take 3 ms, the head 6. On a stage of four with twice the work of each layer
    # (one tensor rank for two) 12, 12, 12 and 24: 3 + 3 + 3 + 24 less a mean of 15, where 3 + 18 were
    was = base(slow=1.5).breakdown.stall("bubble").seconds * 1e3
    assert was == pytest.approx(6.0)
    found = predicted(base(slow=1.5), mesh="data=2,pipeline=4")
    assert found["bubble"] == near(18.0)
    unknown = base_of(job(slow=1.5, layers=0), draws=Draws(64))
    part = what_if(unknown, Alteration(mesh="data=2,pipeline=4")).breakdown.stall("bubble")
    assert part.seconds * 1e3 == near(6.0 + 15 * 3 / 4 - 15 / 4)  # of the textbook


def test_a_pipeline_across_nodes_needs_links_that_are_known():
    with pytest.raises(UserError, match=r"links between the 4 devices of a node are unknown"):
        predicted(base(), mesh="pipeline=4,tensor=2")


def test_a_mesh_without_a_pipeline_has_no_bubble_and_too_little_memory():
    # 4 GB of parameters, gradients and optimizer, 2 GB of activations of 2 microbatches: 2 x 4 + 2 x 2 / 2 = 10 GB
    assert "bubble" not in predicted(base(), mesh="data=4,tensor=2")
    small = base().target.device_memory_bytes.model_copy(
        update={"value": 10e9, "low": None, "high": None}
    )
    tight = replace(base(), target=base().target.model_copy(update={"device_memory_bytes": small}))
    with pytest.raises(
        UserError, match=r"data=4,tensor=2 needs about 10\.0 GB of a device that has 10\.0 GB"
    ):
        predicted(tight, mesh="data=4,tensor=2")


def test_every_shape_has_all_ranks_and_only_axes_that_were_seen():
    found = list(iter_meshes(division_of(job())))
    assert len(found) == len(set(found)) == 10  # 2 x 2 x 2 over three axes: (3 + 2 over 2)
    assert {mesh.ranks for mesh in found} == {8}
    assert Mesh(data=2, pipeline=2, tensor=2) in found
    assert {mesh.shard for mesh in found} == {1}


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"mesh": "data=2,pipeline=2"}, "has 4 ranks, and 8 were profiled"),
        ({"mesh": "data=2,shard=2,tensor=2"}, "shares nothing along shard"),
        ({"mesh": "data=8", "nodes": "4"}, "ask about --nodes by itself"),
        ({"mesh": "rows=8"}, "axes are data, shard, pipeline, tensor"),
        ({"mesh": "all"}, "asks for every mesh"),
        ({"mesh": "pipeline=8"}, "8 layers"),
        ({"split": "5,5"}, "the stages hold 4,4; give 2 numbers that add up to 8"),
        ({"split": "even"}, "give layers for each stage"),
        ({"microbatches": "0"}, "microbatches"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(typed, sentence):
    if typed == {"mesh": "pipeline=8"}:
        found = base_of(job(layers=2), draws=Draws(64))
        sentence = "the model has 4 layers, fewer than that has stages"
    else:
        found = base()
    with pytest.raises(UserError, match=sentence):
        predicted(found, **typed)


def test_jobs_without_what_is_needed_are_refused():
    plain = base_of(build({"crowd": [0.09] * 3, "node": [0.1] * 3}), draws=Draws(64))
    for typed, sentence in (
        ({"mesh": "data=2"}, "keeps no mesh"),
        ({"microbatches": 8}, "no schedule of torch.distributed.pipelining was seen"),
        ({"split": "balanced"}, "no schedule"),
    ):
        with pytest.raises(UserError, match=sentence):
            predicted(plain, **typed)
    theirs = base("ScheduleZBVZeroBubble")
    with pytest.raises(
        UserError, match="in which order ScheduleZBVZeroBubble works on as many is not known"
    ):
        predicted(theirs, microbatches=8)
    with pytest.raises(UserError, match="in other meshes is not known"):
        predicted(theirs, mesh="data=4,pipeline=2")
    other = base_of(job(mesh=(*MESH[:2], MeshAxis(name="cp", ranks=2))), draws=Draws(64))
    with pytest.raises(UserError, match="along the axis cp is not known"):
        predicted(other, mesh="data=8")
    short = base_of(job(mesh=MESH[:2]), draws=Draws(64))
    with pytest.raises(
        UserError, match="has 4 ranks, and 8 were profiled: its groups do not match it"
    ):
        predicted(short, mesh="data=8")


def test_microbatches_of_other_replicas_must_be_whole_and_groups_lie_where_the_mesh_says():
    odd = PipelineSchedule(name="Schedule1F1B", stages=2, ranks=2, microbatches=3)
    with pytest.raises(UserError, match=r"4 replicas would have 1\.5 microbatches each"):
        predicted(base_of(job(pipeline=odd), draws=Draws(64)), mesh="data=4,pipeline=2")
    turned = (MESH[0].model_copy(update={"across_nodes": False}), *MESH[1:])
    with pytest.raises(UserError, match="groups of the data axis do not lie where the mesh"):
        predicted(base_of(job(mesh=turned), draws=Draws(64)), mesh="data=4,pipeline=2")


def test_less_sharding_is_less_to_gather_and_more_gradients_to_exchange():
    axes = (
        MeshAxis(name="dp_replicate", ranks=2, across_nodes=True),
        MeshAxis(name="dp_shard", ranks=4, across_nodes=False),
    )
    plain = build(
        {"cluster": [0.1] * 3}, ranks=RANKS, nodes=NODES, skipped=DIVIDED, workload={"mesh": axes}
    )
    waits = {"dp_replicate/all_reduce": 0.010, "dp_shard/all_gather_into_tensor": 0.009}
    blocks = [
        replace(b, group_waits={key: took * b.steps for key, took in waits.items()})
        for b in plain.blocks
    ]
    found = base_of(plain.model_copy(update={"blocks": tuple(blocks)}), draws=Draws(64))
    # gathers of as many bytes by rings of 2 instead of 4: 1/2 over 3/4. Twice the gradients by rings of 4 instead of
    # 2, 3/2, over twice the network: 3/2
    assert predicted(found, mesh="data=4,shard=2") == near(
        {"compute": 81, "contention": 0, "interconnect": 6, "network": 15}
    )
    # all of it sharded over both nodes: nothing is gathered inside them only, and no gradients are exchanged beside
    with pytest.raises(UserError, match="are unknown"):
        predicted(found, mesh="shard=8")


def test_a_balanced_split_takes_layers_from_the_slow_stage():
    # the last takes 1.5 times as long, which a layer of two stages does not tell apart from a head: 3 ms a layer and
    # 6 of head, so 5 and 3 layers take 15 and 15 ms. A microbatch of a stage: 3.75 ms, which is the bubble
    slow = base(slow=1.5)
    assert predicted(slow)["bubble"] > 3.75
    assert predicted(slow, split="balanced")["bubble"] == pytest.approx(3.75)
    assert predicted(slow, split="5,3") == pytest.approx(predicted(slow, split="balanced"))
    assert predicted(slow, split="4,4") == pytest.approx(predicted(slow))


def test_advice_saves_what_the_forecasts_say():
    slow = base(slow=1.5)
    case = Case(slow.breakdown, slow.profile)
    found = {each.name: each for each in REMEDIES["bubble"](case) if each.name}
    assert "5 and 3 layers a stage" in found["balance-stages"].text
    assert found["balance-stages"].saves == pytest.approx((predicted(slow)["bubble"] - 3.75) / 1e3)
    assert found["microbatches"].asks == Alteration(microbatches="8")
    # the best saves 2 of 100 ms
    assert not [each for each in REMEDIES["network"](case) if each.name == "mesh"]


def test_the_fastest_mesh_is_advised_where_it_saves_much():
    profile = job(tensor=0.030)  # which a pipeline of 4 does not have, for 6 ms more of bubble
    case = Case(attribute(profile), profile)
    mesh = next(each for each in REMEDIES["interconnect"](case) if each.name == "mesh")
    assert "as data=2,pipeline=4 instead of data=2,pipeline=2,tensor=2" in mesh.text
    assert mesh.saves == near(0.030 - 0.006)
    fastest = meshes(case.base, Alteration())[0].forecast
    assert mesh.saves == pytest.approx(0.1 - fastest.breakdown.step_seconds)


def test_measured_links_make_other_meshes_known_and_other_machines_do_not():
    def probed(devices):
        return Target(
            name="lab",
            nodes=2,
            devices=int(devices),
            backend="nccl",
            device="V100-SXM2-16GB",
            inside=NodeLinks(wiring="nvlink", bytes_per_second=given_quantity(10e9, "lab")),
            network=Network(bytes_per_second=given_quantity(1e9, "lab"), transport="tcp"),
        )

    found = replace(base(), clusters=probed)
    with pytest.raises(UserError, match="are unknown"):
        predicted(found, mesh="pipeline=4,tensor=2")
    assert predicted(found, mesh="pipeline=4,tensor=2", cluster="4")[
        "interconnect"
    ] == pytest.approx(8.0)
    with pytest.raises(UserError, match="is not 2 nodes of 4 devices"):
        predicted(found, mesh="pipeline=4,tensor=2", cluster="2")


def test_a_model_that_ranks_of_a_node_share_is_told_of_no_nodes_that_hold_a_part_of_it():
    """Four of a node's four share it: one GPU, or four nodes of one, are another job, and eight of a node are two."""
    shared = base_of(job(replicas=2), draws=Draws(64))
    shared = replace(
        shared, target=shared.target.model_copy(update={"network": Network(bytes_per_second=FAST)})
    )
    for nodes, gpus in ((1, 1), (4, 1), (2, 6)):
        with pytest.raises(
            UserError, match="4 ranks share a replica of the model, on nodes of 4 devices"
        ):
            predicted(shared, nodes=nodes, gpus=gpus)
    assert predicted(shared, nodes=4)["compute"] == pytest.approx(67)
    assert predicted(shared, nodes=1, gpus=8)["compute"] == pytest.approx(67)
    goal = Goal(work=TrainingWork(samples=1e7, text="some"))
    plan = recommend(
        [shared], goal, Constraints(), merge(None, None), BillFacts(), ["x"], date(2026, 11, 22)
    )
    assert {choice.rented.devices for choice in plan.choices} <= {4, 8, 16}
    assert any("4 ranks share a replica" in left.why for left in plan.unranked)


def test_the_command_lists_the_best_and_why_others_are_none(tmp_path, capsys, monkeypatch):
    file = tmp_path / "large.stash.json"
    save(job(), file)
    assert commands.run(monkeypatch, "whatif", str(file), "--mesh", "all", "--json") == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert len(points) == 10
    steps = [each["forecast"]["step_seconds"]["value"] for each in points if each["forecast"]]
    assert steps == sorted(steps)
    assert all(each["why"] for each in points if not each["forecast"])
    assert commands.run(monkeypatch, "whatif", str(file), "--mesh", "data=4,pipeline=2") == 0
    assert "bubble" in capsys.readouterr().out
    assert commands.run(monkeypatch, "whatif", str(file), "--mesh", "data=3") == 2


def test_read_mesh_writes_what_it_reads():
    assert str(read_mesh("tensor=2, data=4")) == "data=4,tensor=2"
    assert str(Mesh()) == "data=1"
