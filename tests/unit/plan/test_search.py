"""The search against every candidate weighed, and bounds against what they bound, on markets drawn at random."""

from datetime import date

import numpy as np
import pytest
from markets import drawn_market, every, find_undominated, jobs, remembering

from stash.plan import evaluation
from stash.plan.bill import BillFacts
from stash.plan.search import PlanProblem, find_least, pareto_front
from stash.plan.settings import step_plan
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of

BASES = [base_of(job, draws=Draws(32)) for job in jobs()]
SEEDS = range(100)
NOW = date(2026, 11, 22)
FACTS = BillFacts(dataset_bytes=140e9, download_bytes_per_second=1e8)


@pytest.fixture(scope="module", autouse=True)
def forecasts_are_made_once():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluation, "stall_draws", remembering(BASES))
        yield


def asked(seed):
    catalog, goal, constraints = drawn_market(seed)
    bases = [BASES[seed % len(BASES)]]
    question = PlanProblem(bases, step_plan(bases, goal), catalog, FACTS, {}, NOW)
    return question, question.candidates(constraints), goal


def kept(found, limits):
    return [
        each
        for each in found
        if (limits.deadline_seconds is None or each.sure_seconds <= limits.deadline_seconds)
        and (limits.budget_dollars is None or each.sure_dollars <= limits.budget_dollars)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_front_is_that_of_every_candidate_weighed(seed):
    question, candidates, limits = asked(seed)
    brute_question, brute_candidates, _ = asked(seed)
    best = kept(every(brute_question, brute_candidates), limits)
    found = pareto_front(question.evaluator, candidates.chains, limits)
    assert [(each.dollars, each.seconds) for each in found] == find_undominated(best)
    for measure in ("dollars", "seconds", "sure_seconds", "sure_dollars"):
        one = find_least(question.evaluator, candidates.chains, measure, limits)
        assert (one and getattr(one, measure)) == min(
            (getattr(each, measure) for each in best), default=None
        )


@pytest.mark.parametrize("seed", range(0, 100, 5))
def test_no_candidate_is_below_its_bounds_at_any_stage(seed):
    question, candidates, _ = asked(seed)
    brute_question, brute_candidates, _ = asked(seed)
    every(brute_question, brute_candidates)
    for chain, whole in zip(candidates.chains, brute_candidates.chains, strict=True):
        for number in (None, *range(len(chain.shape.nodes))):
            if number is not None:
                question.evaluator.advance(chain, number)
            for measure in ("seconds", "dollars", "sure_seconds", "sure_dollars"):
                bounds, truth = chain.least[measure], whole.least[measure]
                assert np.all(bounds <= truth * (1 + 1e-9))
