"""What the report says of a divided model: its mesh, its pipeline, its tokens."""

from breakdowns import change_blocks
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.records.profile import MeshAxis, PipelineSchedule
from stash.report import model_facts

AXES = (
    MeshAxis(name="dp_shard", ranks=2, across_nodes=True),
    MeshAxis(name="tp", ranks=2, across_nodes=False),
    MeshAxis(name="pp", ranks=1),
)
EVEN = PipelineSchedule(name="Schedule1F1B", stages=4, ranks=4, microbatches=16)


def profile(**workload):
    return build(
        {"crowd": [0.09] * 4, "node": [0.1] * 4}, batch=4, ranks=4, nodes=2, workload=workload
    )


def test_a_mesh_is_named_in_words_with_where_its_groups_lie():
    found = profile(mesh=AXES)
    assert model_facts.shared_among(found) == "shards 2 × tensor 2"
    facts = dict(model_facts.model_facts(attribute(found), found))
    assert facts["ranks share"] == "shards 2, across nodes; tensor 2, inside nodes"


def test_a_schedule_says_what_it_must_idle_and_what_twice_the_microbatches_would():
    found = profile(pipeline=EVEN)
    assert dict(model_facts.model_facts(attribute(found), found))["pipeline"] == (
        "Schedule1F1B, 4 stages, 16 microbatches: ranks idle 15.8% of its passes if stages take equally long and "
        "messages no time, 8.6% with 32 microbatches"
    )
    theirs = profile(pipeline=EVEN.model_copy(update={"name": "Theirs"}))
    assert (
        "is unknown, and so what they must idle"
        in dict(model_facts.model_facts(attribute(theirs), theirs))["pipeline"]
    )


def test_tokens_are_shown_with_their_padding():
    found = profile(tokens_per_sample=512.0, padding=0.25)
    assert dict(model_facts.model_facts(attribute(found), found))["tokens"].endswith(
        "a second, 25% of them padding"
    )


def test_programs_get_the_same_and_null_for_what_is_unknown():
    found = profile(mesh=AXES, pipeline=EVEN)
    document = model_facts.document(attribute(found), found)
    assert [axis["name"] for axis in document["mesh"]] == ["dp_shard", "tp", "pp"]
    assert document["pipeline"] == {
        "name": "Schedule1F1B",
        "stages": 4,
        "ranks": 4,
        "microbatches": 16,
        "idle_share": 0.1579,
    }
    assert (document["tokens_per_second"], document["model_share"]) == (None, None)


def test_a_mesh_that_is_not_of_all_ranks_says_what_that_means():
    found = profile(mesh=(MeshAxis(name="tp", ranks=8),))
    facts = dict(model_facts.model_facts(attribute(found), found))
    assert facts["ranks share"].startswith(
        "tensor 8: that does not make 4 ranks, so each wait is taken for one of"
    )


def test_a_pipeline_whose_passes_cannot_be_played_says_so():
    why = dict.fromkeys(("solo", "crowd"), "the model is divided among ranks")
    found = build({"node": [0.1] * 3}, skipped=why, workload={"pipeline": EVEN})
    assert "ragged microbatches" not in str(model_facts.model_facts(attribute(found), found))
    # of a job that waits for nothing but other stages nothing was seen, so another group has to wait, too
    both = {"pipeline/recv": 0.2, "tp/all_reduce": 0.1}
    ragged = change_blocks(found, lambda _: {"group_waits": both})
    assert (
        "ragged microbatches" in dict(model_facts.model_facts(attribute(ragged), ragged))["bubble"]
    )
