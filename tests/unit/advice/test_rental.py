"""Keep it, give it back, or not its fault: the verdict on a rental, in the job's currency and in 2 KB."""

import json

import pytest
from probe_builder import host, links, p3_8xlarge, probe

from bench.probe import ScriptedGpu, scripted_faults, scripted_machine
from stash.advice.rental import WORTH, judge_rental
from stash.analysis.findings.probe_reading import read_probe
from stash.catalog.layers import merge
from stash.core.intervals import Interval
from stash.core.records.host import PartState
from stash.predict.shortfalls import JobLoss

KNOWN = merge(None, None)
OFFER = KNOWN.newest_on_demand("p3.8xlarge")


def judged(found, share=None, offer=OFFER):
    seconds = (
        None if share is None else Interval(value=0.4 * share, low=0.39 * share, high=0.41 * share)
    )
    losses = None if share is None else [JobLoss(part="compute", seconds=seconds, share=share)]
    return judge_rental(found, read_probe(found, KNOWN), losses, offer)


SLOW = scripted_machine(ScriptedGpu(ClockInfo=1185, CurrentClocksEventReasons=0x80), slow=0.89)
BUSY = probe(host("a", links(states=(PartState(device="cpu", others_cores=1.5),))))
QUIET = probe(host("a", links(states=(PartState(device="cpu", others_cores=0.1),))))


@pytest.mark.parametrize(
    ("found", "share", "answer", "says"),
    [
        (SLOW, None, "give back", "Give it back: GPU 3 ran at 84% of its highest clock"),
        (SLOW, 0.076, "give back", "Your step loses 30.4 ± 0.8 ms (7.6%), $22.33 a day."),
        (SLOW, WORTH / 2, "fine for this job", "Fine for this job, though below its type"),
        (scripted_machine(ScriptedGpu(TotalEccErrors=2)), 0.0, "give back", "uncorrectable errors"),
        (scripted_machine(ScriptedGpu()), None, "keep", "Keep it"),
        (BUSY, 0.3, "probe again", "Not the machine's fault: other programs used 1.5 cores"),
        (QUIET, None, "cannot tell", "three make a comparison"),
    ],
)
def test_the_verdict_follows_from_whose_fault_it_is_and_what_it_costs(found, share, answer, says):
    verdict = judged(found, share)
    assert verdict.answer == answer
    assert says in verdict.text


def test_what_other_programs_take_is_never_the_machines_fault(tmp_path):
    healthy = scripted_machine(ScriptedGpu()).hosts[0]
    slow = scripted_machine(ScriptedGpu(), slow=0.5).hosts[0]
    states = (*slow.links.states, PartState(device="cpu", others_cores=2.0))
    both = probe(
        slow.model_copy(update={"links": slow.links.model_copy(update={"states": states})})
    )
    assert judged(both).answer == "probe again"
    assert any("gemm bfloat16" in text for text in judged(both).yours)
    assert judged(probe(healthy)).answer == "keep"


@pytest.mark.parametrize(
    ("known", "lost"),
    [({"compute": 0.3, "prep": 0.01, "all": 0.32}, 0.32), ({"compute": 0.3, "prep": 0.01}, 0.3)],
)
def test_the_step_loses_what_all_parts_cost_together_or_at_least_the_largest_known(known, lost):
    losses = [
        JobLoss(
            part=part,
            seconds=None if part not in known else Interval(value=known[part]),
            share=known.get(part),
        )
        for part in ("compute", "exchange", "prep", "all")
    ]
    assert judge_rental(SLOW, read_probe(SLOW, KNOWN), losses, OFFER).lost_share == lost


def test_a_verdict_for_agents_takes_2_kb_at_most(tmp_path):
    for name, (found, _) in scripted_faults(tmp_path).items():
        assert len(json.dumps(judged(found, 0.1).brief)) <= 2048, name
    many = probe(
        *[p3_8xlarge(hostname=f"a-machine-of-a-very-long-name-{number}") for number in range(9)]
    )
    text = json.dumps(judged(many, 0.1).brief)
    assert len(text) <= 2048
    assert json.loads(text)["dollars_per_hour"] == pytest.approx(9 * 12.24)


def test_a_type_without_a_price_has_none():
    assert KNOWN.newest_on_demand(None) is None
    assert KNOWN.newest_on_demand("no-such-type") is None
    assert judged(QUIET, 0.1, None).dollars_per_day is None
