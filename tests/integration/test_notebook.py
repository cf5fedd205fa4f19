"""A notebook run by a real kernel: a function and a loop are profiled, shown while they are, and shown small."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"
LOOP = "for epoch in range(1000):\n    for x, y in loader:\n        step(x, y)\n"
CELLS = (
    *(
        cell.source
        for cell in nbformat.read(EXAMPLE, as_version=4).cells
        if cell.cell_type == "code"
    ),
    f"def train():\n{LOOP.replace('    ', '      ').replace('for epoch', '    for epoch')}\n"
    "profile = stash.profile(train, budget=10, noise=0.5)\nprint(profile)",
    "%%stash --budgte 2\npass",
    "waiting = (x for x in loader)",
    "%%stash\nfor x, y in waiting: step(x, y)",
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cells():
    """The outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_loop_in_a_cell_is_profiled_and_its_progress_shown(cells):
    progress, result = cells[2]
    assert (progress.output_type, result.output_type) == ("display_data", "execute_result")
    assert progress.data["text/plain"].startswith("loop: profiled in ")


def test_what_it_returns_is_the_top_of_a_report(cells):
    for data in (cells[2][1].data, cells[3][0].data):
        text = data["text/plain"]
        assert len(text.splitlines()) <= 40
        assert "compute" in text
        assert "1 CPU rank on 1 node" in text
        assert "one launch" in text


def test_its_numbers_are_at_hand(cells):
    (printed,) = cells[4]
    assert printed.text.startswith("compute ")


def test_a_function_of_the_notebook_is_profiled_as_well(cells):
    progress, printed = cells[5]
    assert progress.data["text/plain"].startswith("train: ")
    assert "compute" in printed.text


def test_a_mistake_is_one_sentence(cells):
    (typed,), (held,) = cells[6], cells[8]
    assert typed.text.startswith("error: %%stash: unrecognized arguments: --budgte")
    assert held.text.startswith("error: loop cannot be given to a process of its own (")
    assert "generator" in held.text
