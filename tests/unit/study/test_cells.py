"""Cells of a study: how many, which, in which order, and what makes two of them the same."""

from pathlib import Path

import pytest
from studies import LOCAL, SKY, cells_of, reading_of, study

from stash.core.errors import UserError
from stash.study.status import order_cells

EXAMPLE = Path(__file__).parents[3] / "examples/features.yaml"
GRID = """
workloads: [{zoo: vgg11}, {zoo: resnet18}]
batches: [64, 32]
targets:
- {engine: sky, instance: p3.8xlarge, nodes: [1, 2], price: "$12/h"}
- {engine: local}
repeats: 2
"""
EMULATED = """
workloads: [{zoo: resnet50}]
targets: [{engine: emulated, instance: p3.8xlarge, nodes: [1, 2]}]
"""


def made(text, folder=Path()):
    return cells_of(study(text, folder))


def test_the_product_less_what_is_excluded():
    assert len(made(GRID)) == 2 * 2 * 3 * 2
    less = made(
        GRID + "exclude: [{batch: 64, nodes: 2}, {workload: vgg11, target: this machine}]\n"
    )
    assert len(less) == (2 * 2 * 3 - 2 - 2) * 2


def test_every_place_runs_one_small_cell_first_then_one_repeat_before_the_next():
    order = order_cells(made(GRID))
    first = [
        (cell.place.name, cell.workload, cell.batch, cell.nodes, cell.repeat) for cell in order[:2]
    ]
    assert first == [("this machine", "resnet18", 32, 1, 0), ("p3.8xlarge", "resnet18", 32, 1, 0)]
    repeats = [cell.repeat for cell in order]
    assert repeats == sorted(repeats)
    for cell in order:
        smaller = [
            one
            for one in order
            if one.group_key == cell.group_key and (one.batch or 0) < (cell.batch or 0)
        ]
        assert all(
            order.index(one) < order.index(cell) for one in smaller if one.repeat == cell.repeat
        )


def test_what_is_measured_makes_the_cell_and_not_what_it_costs_or_is_called():
    (cell, _) = made(SKY)
    assert made(SKY.replace('price: "$12/h"', 'name: other, price: "$1/h"'))[0].id == cell.id
    changed = [
        'price: "$12/h", spot: true',
        'price: "$12/h", region: us-east-1',
        'price: "$12/h", data: /data',
    ]
    for fields in changed:
        assert made(SKY.replace('price: "$12/h"', fields))[0].id != cell.id
    assert cells_of(study(SKY, Path()), version="2.0")[0].id != cell.id


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            GRID.replace("vgg11", "resnet8"),
            ":2: workloads[0].zoo: no workload is called 'resnet8'; did you mean",
        ),
        (
            GRID.replace("vgg11", "resnet18"),
            ":2: workloads[1].name: there are two workloads called 'resnet18'",
        ),
        (
            GRID.replace("p3.8xlarge", "p3.8xlrge"),
            ":5: targets[0].instance: unknown instance 'p3.8xlrge'; did you",
        ),
        (
            GRID.replace("engine: local", 'engine: sky, instance: p3.8xlarge, price: "$1/h"'),
            "two targets called",
        ),
        (
            GRID.replace('price: "$12/h"', "region: mars-1"),
            "knows no on-demand price of p3.8xlarge in mars-1; give `pri",
        ),
        (
            GRID + "exclude: [{target: mars}]\n",
            ":8: exclude[0].target: the study has no target 'mars'; it has",
        ),
        (GRID + "exclude: [{batch: [32, 64]}]\n", "`exclude:` leaves no cell"),
        (
            EMULATED.replace("zoo: resnet50", "command: [train.py]"),
            "trains workloads of the zoo alone; `exclude:` tra",
        ),
        (
            LOCAL.replace("zoo: vgg11", "command: [a.py]"),
            ":2: workloads[1].command: there is no script a.py in",
        ),
        (
            LOCAL.replace("zoo: vgg11", "command: [a.py, '{data}']"),
            "{data} stands for nothing there; give `data:`",
        ),
    ],
)
def test_what_does_not_fit_together_is_told_with_its_line(text, sentence):
    with pytest.raises(UserError) as caught:
        made(text)
    assert sentence in str(caught.value)


def test_times_and_prices_by_hand(tmp_path):
    file = study(SKY, tmp_path)
    reading = reading_of(file)
    takes = reading.remaining_estimate
    # Two cells of 60 + 60 s on one cluster that takes 300 s to be there, at $12 an hour.
    assert (takes.cells, takes.seconds) == (2, 540)
    assert takes.dollars == pytest.approx(540 * 12 / 3600)
    free = reading_of(
        study(LOCAL.replace("engine: local", 'engine: local, price: "$1/h"'), tmp_path)
    )
    assert free.remaining_estimate == (4, 480, None)
    wide = LOCAL.replace(
        "[{engine: local}]", "[{engine: slurm, partition: gpu, at_once: 1000}, {engine: local}]"
    )
    # lanes run side by side
    assert reading_of(study(wide, tmp_path)).remaining_estimate == (
        8,
        480,
        None,
    )
