"""Study files: what may stand in them, and that every mistake is told with its line and its field."""

import re
from pathlib import Path

import pytest
from studies import study as written

from stash.core.errors import UserError
from stash.study.study_file import read_study
from stash.study.study_folder import StudyEvent

pytestmark = pytest.mark.usefixtures("home")

GOOD = """
workloads:
- zoo: resnet18
- {name: mine, command: [train.py, --lr, 0.1, --batch, "{batch}"], batches: 16}
batches: [32, 64]
targets:
- {engine: local}
- {engine: slurm, partition: gpu}
- {engine: sky, instance: p3.8xlarge, spot: true, price: "$3.06/h"}
- {engine: emulated, instance: p2.8xlarge, network: 10gbit, nodes: [1, 2]}
settings: {budget: 30s, rungs: [solo, crowd]}
exclude: [{workload: mine, target: p2.8xlarge}]
"""


def test_every_kind_of_target_is_read_in_base_units(tmp_path):
    study = written(GOOD, tmp_path).study
    assert [target.engine for target in study.targets] == ["local", "slurm", "sky", "emulated"]
    local, _, sky, emulated = study.targets
    assert (local.nodes, sky.price) == (None, 3.06)
    assert (getattr(emulated, "network", None), emulated.nodes) == (1.25e9, (1, 2))
    assert study.workloads[1].command == ("train.py", "--lr", "0.1", "--batch", "{batch}")
    assert (study.settings.budget, study.settings.rungs, study.exclude[0].workload) == (
        30,
        ("solo", "crowd"),
        ("mine",),
    )


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "- zoo: resnet18",
            "- zo: resnet18",
            ":3: workloads[0].zo: there is no such field; did you mean zoo?",
        ),
        ("- zoo: resnet18", "- {}", ":3: workloads[0]: give either `zoo:`"),
        ("{batch}", "{bach}", ":4: workloads[1]: `batches:` changes nothing"),
        ("[32, 64]", "[0]", ":5: batches[0]: should be greater than or equal to 1"),
        (
            "engine: local",
            "engine: lokal",
            ":7: targets[0].engine: there is no such engine; use one of local",
        ),
        ("engine: local", "devices: 2", ":7: targets[0]: needs `engine:`, one of local"),
        ("engine: local", "engine: local, nodes: 2", ":7: targets[0].nodes: should be 1"),
        (", partition: gpu", "", ":8: targets[1].partition: is missing"),
        ('"$3.06/h"', "3.06", ":9: targets[2].price: '3.06' has no unit"),
        ("instance: p3.8xlarge, ", "", ":9: targets[2]: give either `instance:`"),
        ("30s", "soon", ":11: settings.budget: cannot read the duration 'soon'"),
        ("[solo, crowd]", "[solos]", ":11: settings.rungs: unknown rung 'solos'"),
        ("{workload: mine, target: p2.8xlarge}", "{}", ":12: exclude[0]: give at least one of"),
    ],
)
def test_a_mistake_is_told_with_line_and_field(tmp_path, before, after, sentence):
    with pytest.raises(UserError) as caught:
        written(GOOD.replace(before, after, 1), tmp_path)
    assert f"grid.yaml{sentence}" in str(caught.value)


def test_all_mistakes_are_told_at_once_and_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError) as caught:
        written(GOOD.replace("30s", "soon").replace(", partition: gpu", ""), tmp_path)
    assert len(str(caught.value).splitlines()) == 2
    with pytest.raises(UserError, match="cannot read the study"):
        read_study(Path("/nowhere/grid.yaml"))


def test_an_edited_script_is_another_workload(tmp_path):
    file = written(GOOD, tmp_path)
    words = file.study.workloads[1].command
    (tmp_path / "train.py").write_text("print(1)")
    before = file.script(words)
    assert file.script(words) == before
    (tmp_path / "train.py").write_text("print(2)")
    assert file.script(words) != before
    assert file.script(("--lr", "0.1")) == ""


PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()


def section(title):
    return re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_journals_fields_are_on_the_page():
    text = section("The folder of a study")
    assert [name for name in StudyEvent.model_fields if f"`{name}`" not in text] == []
