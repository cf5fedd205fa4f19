"""One cell of an emulated instance, as a user runs it: real processes on shaped links, and its known truth."""

import pytest
from characterized import Controller, needs_testbed

from bench.study.runs import model
from bench.study.truth import truth
from stash.analysis.attribution import attribute
from stash.core.artefact import load
from stash.study.study_file import read_study
from stash.study.study_folder import folder_of_study
from stash.study.study_run import cells_of

pytestmark = [pytest.mark.slow, needs_testbed]
STUDY = """
workloads: [{zoo: alexnet}]
batches: 32
targets: [{engine: emulated, instance: p2.8xlarge, ranks: 2}]
settings: {budget: 3s, rungs: [solo, crowd, node]}
"""


def test_an_emulated_instance_stalls_as_its_links_must_make_it(tmp_path):
    Controller(tmp_path, STUDY).wait_for_end()
    place = tmp_path / "grid.yaml"
    (cell,) = cells_of(read_study(place))
    found, true = (
        attribute(load(folder_of_study(place).cell(cell.id).profile)),
        truth(cell, model(cell)),
    )
    interconnect = found.stall("interconnect")
    # 42 % of the step, by hand; a link that is not shaped has 0, one of the wrong scale anything else.
    assert interconnect.share == pytest.approx(true["interconnect"] / sum(true.values()), abs=0.1)
    again = Controller(tmp_path, STUDY).wait_for_end()
    assert "1 of 1 cells are done" in again
    assert "started" not in again
