"""``stash.profile`` and ``%%stash``: what they refuse before anything is started, and the panel below a cell."""

import sys
from types import SimpleNamespace

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.errors import UserError
from stash.measure.from_python import parse_magic, profile
from stash.measure.launcher.function import loop_text
from stash.measure.launcher.measurement import Moment
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.live import NotebookProgress


@pytest.mark.parametrize("noise", [2, 1.0, 0, -0.1, float("nan")])
def test_per_cent_is_refused_where_a_fraction_is_meant(noise):
    with pytest.raises(
        UserError, match=r"write 0\.02 for the ±2 % that the command calls --noise 2"
    ):
        profile(print, noise=noise)


def test_the_text_of_a_loop_takes_what_it_names_and_nothing_else():
    done = []
    loop = loop_text(
        "for x in data:\n    [done.append(x * scale) for _ in range(1)]",
        {**globals(), **locals(), "data": [1, 2], "scale": 3, "unused": lambda: 0},
    )
    assert set(loop.variables) == {"data", "done", "scale"}
    loop()
    assert done == [3, 6]


@pytest.mark.parametrize(
    ("train", "more", "sentence"),
    [
        ("for x in", {}, r"the loop is not Python: .* \(line 1\)"),
        ("pass", {"lr": 0.1}, r"takes no arguments; give what it names as variables=\{...\}"),
        (
            print,
            {"held": (x for x in ())},
            r"print cannot be given to a process of its own \(cannot pickle",
        ),
        (print, {"budget": 0}, "must be more than 0 seconds"),
        (print, {"budget": "2x"}, "unknown time unit 'x' in '2x'"),
    ],
)
def test_what_cannot_be_profiled_is_refused_in_a_sentence(train, more, sentence):
    with pytest.raises(UserError, match=sentence):
        profile(train, **more)


def test_options_of_the_magic_are_those_of_the_command():
    given = parse_magic("--budget 30 --noise=1 --nproc-per-node 2 --keep-logging --rungs solo,warm")
    assert (given.nproc_per_node, given.budget, given.noise) == (2, 30.0, 0.01)
    assert (given.keep_logging, given.rungs) == (True, ("solo", "warm"))


@pytest.mark.parametrize("line", ["--budget", "--what 3", "--nproc-per-node 0", "--budget soon"])
def test_other_options_are_refused(line):
    with pytest.raises(UserError):
        parse_magic(line)


def test_a_notebooks_panel_is_one_output_written_again(monkeypatch):
    shown = []
    output = SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))
    display = SimpleNamespace(
        display=lambda bundle, raw, display_id: shown.append(bundle) or output
    )
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    now = [0.0]
    session = SimpleNamespace(
        job=SimpleNamespace(title="<train>"),
        measurement=SimpleNamespace(wishes=ProfileOptions(budget=60.0)),
    )
    profiled = build(CALM)
    with NotebookProgress(session, lambda: now[0]) as progress:
        for number in range(90):
            now[0] += 0.01
            progress.show(
                Moment("warm", 0, number / 100, notice="started again" if number == 0 else None)
            )
        progress.show(Moment("warm", 1, 9.0, profiled, attribute(profiled)))
    assert "starting the job" in shown[0]["text/plain"]
    assert len(shown) == 1 + 3 + 1 + 1  # at first, in 0.9 s by fours, a round's end, the end
    assert "real batches, files in memory" in shown[2]["text/plain"]
    assert "started again" in shown[2]["text/plain"]
    assert "interconnect" in shown[4]["text/plain"]
    assert "&lt;train&gt;" in shown[4]["text/html"]
    assert shown[-1]["text/plain"] == "<train>: profiled in 1 s"
