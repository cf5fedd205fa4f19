"""Places: which line of the script a look counts for, what it waits for there, and what comes before the model."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch

from stash.core.ledger_rows import (
    BACKWARD,
    COLLECTIVE,
    EPOCH_START,
    EVALUATION,
    FORWARD,
    INPUT,
    LOOP,
    OPTIMIZER,
)
from stash.measure.agent.runner import stack_looks, thread_stack
from stash.measure.agent.runner.stack_looks import Places
from stash.measure.agent.wraps import steps

SCRIPT = """
import json, torch
def prepare(look):
    look("forward", 2.0)
class Model(Part):
    def forward(self, look):
        look("forward", 0.75)
        Part()(look)("forward", 1.0)
def train(look):
    prepare(look)
    Model()(look)
    json.loads("0", parse_int=lambda _: look("loop", 0.5))
    look("forward", 0.25)
"""


class Part(torch.nn.Identity):
    """With a parameter, as what trains has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))


def run(folder: Path, script: str = SCRIPT, more: Mapping[str, object] = {}) -> Places:
    """A script whose lines say themselves how long they were seen; ``more``: names that it may use."""
    places = Places(threading.get_ident(), lambda: LOOP)
    names: dict[str, object] = {"Part": Part, **more}
    (folder / "train.py").write_text(script)
    exec(compile(script, str(folder / "train.py"), "exec"), names)

    def look(row: str, seconds: float) -> None:
        places.add(row, sys._getframe(1), seconds)

    names["train"](look)  # type: ignore[operator]
    return places


def test_a_look_counts_for_the_scripts_innermost_line_and_says_what_that_waits_for(
    tmp_path: Path,
) -> None:
    loop = [row for row in run(tmp_path).rows() if row["row"] == LOOP]
    assert [(row["line"], row["seconds"]) for row in loop] == [(12, 0.5)]
    assert loop[0]["text"].startswith("json.loads(")
    assert loop[0]["file"] == str(tmp_path / "train.py")


def test_a_line_in_a_function_is_named_with_where_the_loop_called_it(tmp_path: Path) -> None:
    callers = {row["line"]: Path(row["caller"]).name for row in run(tmp_path).rows()}
    assert callers[4] == "train.py:10"
    assert callers[13] == ""


def test_what_the_loop_does_before_it_calls_its_model_is_its_own_and_the_models_lines_are_not(
    tmp_path: Path,
) -> None:
    places = run(tmp_path)
    assert places.move_to_loop() == 2.0
    by_line = {(row["row"], row["line"]): row["seconds"] for row in places.rows()}
    assert by_line == {
        (LOOP, 4): 2.0,
        (LOOP, 12): 0.5,
        (FORWARD, 7): 0.75,
        (FORWARD, 8): 1.0,
        (FORWARD, 13): 0.25,
    }


def test_a_loop_that_computes_in_functions_of_its_own_is_followed_through_them(
    tmp_path: Path,
) -> None:
    """The same helper counts for the loop before the step's function is called, and for the model below that."""
    script = """
import torch
def hash_blocks(look):
    look("forward", 1.0)
class Model(Part):
    def forward(self, look):
        hash_blocks(look)
def update(look):
    def loss():
        look("forward", 4.0)
        Model()(look)
        look("backward", 2.0)
    loss()
def train(look):
    hash_blocks(look)
    update(look)
    look("loop", 0.5)
"""
    places = run(tmp_path, script)
    assert places.move_to_loop() == 5.0
    assert {(row["row"], row["line"]): row["seconds"] for row in places.rows()} == {
        (LOOP, 4): 1.0,
        (LOOP, 10): 4.0,
        (LOOP, 17): 0.5,
        (FORWARD, 4): 1.0,
        (BACKWARD, 12): 2.0,
    }
    assert {(row["row"], row["line"]) for row in places.rows() if row["prepares"]} == {
        (LOOP, 4),
        (LOOP, 10),
    }


def test_what_a_generator_does_with_a_batch_is_the_loops_own_though_the_model_was_never_seen(
    tmp_path: Path,
) -> None:
    """A model of microseconds, whose batches one rank prepares in 10 ms and sends: that counted as its forward pass."""
    script = """
def batches(look):
    look("input", 0.5)
    look("forward", 4.0)
    yield
def train(look):
    for batch in batches(look):
        compute(look)
        look("loop", 0.125)
def compute(look):
    look("forward", 0.25)
"""
    places = run(tmp_path, script)
    assert places.move_to_loop() == 4.0
    assert {(row["row"], row["line"]) for row in places.rows()} == {
        (INPUT, 3),
        (LOOP, 4),
        (FORWARD, 11),
        (LOOP, 9),
    }


def test_lines_below_one_that_runs_whole_steps_are_no_preparation_of_a_batch(
    tmp_path: Path,
) -> None:
    """As those of a loss in a framework's step."""
    framework = """
def fit(look, loss):
    look("input", 0.5)
    loss(look)
    look("backward", 2.0)
"""
    script = """
def loss(look):
    look("forward", 4.0)
def train(look):
    fit(look, loss)
"""
    names: dict[str, object] = {}
    exec(compile(framework, str(tmp_path / "site-packages" / "framework.py"), "exec"), names)
    places = run(tmp_path, script, names)
    assert places.move_to_loop() == 0.0
    assert {(row["row"], row["line"]) for row in places.rows()} == {
        (INPUT, 5),
        (FORWARD, 3),
        (BACKWARD, 5),
    }


def test_without_a_batch_a_pass_ends_where_the_last_gradients_are_computed(tmp_path: Path) -> None:
    script = """
import torch
def train(look):
    look("loop", 0.5)
    call = Part()
    call.forward = lambda given: given("loop", 1.0)
    call(look)
    look("loop", 2.0)
    look("backward", 4.0)
    look("loop", 8.0)
"""
    places = run(tmp_path, script)
    assert places.move_to_forward() == 3.0
    assert {row["line"]: row["prepares"] for row in places.rows() if row["row"] == LOOP} == {
        4: True,
        10: False,
    }


def test_a_collective_is_the_scripts_own_where_its_own_line_calls_it_and_not_where_its_model_does(
    tmp_path: Path,
) -> None:
    """Shards are gathered below ``torch.nn``'s call of a module that the script only calls."""
    script = """
import torch
class Gathered(torch.nn.Module):
    def forward(self, look):
        look("collective", 4.0)
def train(look):
    look("collective", 0.5)
    Gathered()(look)
    hooked = torch.nn.Identity()
    hooked.register_forward_pre_hook(lambda *_: None)
    hooked.forward = look_below
    hooked(look)
"""
    places, names = Places(threading.get_ident(), lambda: LOOP), dict[str, object]()
    (tmp_path / "train.py").write_text(script)

    def look(row: str, seconds: float) -> None:
        places.add(row, sys._getframe(1), seconds)

    def look_below(_: object) -> None:
        places.add(COLLECTIVE, sys._getframe(1), 2.0)  # from torch.nn's own frame

    names["look_below"] = look_below
    exec(compile(script, str(tmp_path / "train.py"), "exec"), names)
    names["train"](look)  # type: ignore[operator]
    assert {(row["row"], row["line"]): row["seconds"] for row in places.rows()} == {
        (COLLECTIVE, 5): 4.0,
        (COLLECTIVE, 7): 0.5,
    }


def test_clearing_gradients_is_the_optimizers_work_and_no_call_of_a_model(tmp_path: Path) -> None:
    script = "def train(cleared, look):\n    cleared.zero_grad()\n    look(1.0)\n"
    (tmp_path / "train.py").write_text(script)
    places, names = Places(threading.get_ident(), lambda: OPTIMIZER), dict[str, object]()

    class Parameter(torch.nn.Parameter):
        @property
        def grad(self) -> None:
            places.add(OPTIMIZER, sys._getframe(1), 3.0)

    def look(seconds: float) -> None:
        places.add(FORWARD, sys._getframe(1), seconds)

    parameter = Parameter(torch.ones(2))
    module = torch.nn.ParameterList()
    module._parameters["0"] = parameter
    module.zero_grad = partial(steps._tell_of_clearing(torch.nn.Module.zero_grad), module)  # type: ignore[method-assign]
    exec(compile(script, str(tmp_path / "train.py"), "exec"), names)
    for cleared in (torch.optim.SGD([parameter], lr=0.1), module):
        names["train"](cleared, look)  # type: ignore[operator]
    assert places.before_update == places.move_to_loop() == 0.0
    found = [(row["row"], row["line"], row["seconds"]) for row in places.rows()]
    assert found == [(FORWARD, 3, 2.0), (OPTIMIZER, 2, 6.0)]


def test_own_lines_between_backward_and_the_update_are_the_loops_and_the_librarys_clipping_is_not(
    tmp_path: Path,
) -> None:
    script = """
def clip(look, parameters):
    look(2.0)
def train(look, library, optimizer, parameters):
    clip(look, parameters)
    library(parameters, 1.0)
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(script)
    places, names = Places(threading.get_ident(), lambda: OPTIMIZER), dict[str, object]()

    class Parameter(torch.nn.Parameter):
        @property
        def grad(self) -> None:
            places.add(OPTIMIZER, sys._getframe(1), 0.5)

    def look(seconds: float) -> None:
        places.add(OPTIMIZER, sys._getframe(1), seconds)

    parameters = [Parameter(torch.ones(2))]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    exec(compile(script, str(tmp_path / "train.py"), "exec"), names)
    names["train"](look, torch.nn.utils.clip_grad_norm_, optimizer, parameters)  # type: ignore[operator]
    assert places.before_update == 2.0
    assert {(row["row"], row["line"]) for row in places.rows()} == {
        (LOOP, 3),
        (OPTIMIZER, 6),
        (OPTIMIZER, 7),
    }


def test_a_model_that_is_called_between_a_pass_and_the_update_makes_another_pass(
    tmp_path: Path,
) -> None:
    script = """
class Model(Part):
    def forward(self, look):
        look("optimizer", 2.0)
def train(look):
    Model()(look)
    look("optimizer", 1.0)
"""
    places = run(tmp_path, script)
    assert {(row["row"], row["line"]): row["seconds"] for row in places.rows()} == {
        (FORWARD, 4): 2.0,
        (LOOP, 7): 1.0,
    }
    assert places.before_update == 1.0


def test_an_instruction_of_no_line_is_its_functions_first(tmp_path: Path) -> None:
    code = SimpleNamespace(
        co_filename=str(tmp_path / "train.py"), co_firstlineno=7, co_name="train"
    )
    frame: Any = SimpleNamespace(f_code=code, f_lineno=None, f_back=None)
    places = Places(threading.get_ident(), lambda: LOOP)
    places.add(LOOP, frame, 1.0)
    assert [(row["line"], row["text"]) for row in places.rows()] == [(7, "")]
    assert thread_stack.own_line(frame) == (str(tmp_path / "train.py"), 7)


def test_hooks_of_the_scripts_own_are_the_loops_and_its_functions_with_gradients_are_not(
    tmp_path: Path,
) -> None:
    script = """
import torch
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x
    @staticmethod
    def backward(context, gradient):
        look(1.0)
        return 2 * gradient
def watch(gradient):
    look(2.0)
x = torch.ones(2, requires_grad=True)
x.register_hook(watch)
Doubled.apply(x).sum().backward()
"""
    (tmp_path / "train.py").write_text(script)
    places = Places(threading.get_ident(), lambda: BACKWARD)

    def look(seconds: float) -> None:
        places.add(BACKWARD, sys._getframe(1), seconds)

    exec(compile(script, str(tmp_path / "train.py"), "exec"), {"look": look})
    assert places.in_hooks == 2.0
    assert {(row["row"], row["line"]): row["seconds"] for row in places.rows()} == {
        (BACKWARD, 9): 1.0,
        (LOOP, 12): 2.0,
    }


def test_without_a_batch_that_begins_a_pass_it_begins_where_the_model_is_called(
    tmp_path: Path,
) -> None:
    script = """
import torch
def train(look):
    look("loop", 0.5)
    look("forward", 0.25)
    Part()(look)("loop", 2.0)
    call = Part()
    call.forward = lambda given: given("loop", 1.0)
    call(look)
"""
    places = run(tmp_path, script)
    assert places.move_to_forward() == 1.0  # the first call was over when it was looked at
    rows = {(row["row"], row["line"]): row["seconds"] for row in places.rows()}
    assert rows[LOOP, 4] == 0.5
    assert sum(seconds for (row, _), seconds in rows.items() if row == FORWARD) == 1.25


def test_a_model_whose_forward_the_script_calls_itself_computes_as_well(tmp_path: Path) -> None:
    """As ``model.forward(x)``, of which no hook of PyTorch's is told; what is no model is none by that name."""
    script = """
class Model(Part):
    def forward(self, look):
        look("loop", 1.0)
class Cursor:
    def forward(self, look):
        look("loop", 4.0)
def train(look):
    Cursor().forward(look)
    Model().forward(look)
"""
    places = run(tmp_path, script)
    assert places.move_to_forward() == 1.0
    rows = {row["row"]: (row["line"], row["seconds"]) for row in places.rows()}
    assert rows == {FORWARD: (4, 1.0), LOOP: (7, 4.0)}


def test_a_stack_of_two_moments_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread returned while its frames were walked: what called the inner ones was at another line by then."""
    places = Places(threading.get_ident(), lambda: LOOP)
    here, inner = sys._getframe(), []
    json.loads("0", parse_int=lambda _: inner.append(sys._getframe()))
    for frames, is_seen in ((here, here), True), ((inner[0], here), False):
        monkeypatch.setattr(stack_looks.private, "stack_of", lambda _, left=[*frames]: left.pop(0))
        assert places._look(LOOP, 1.0) == LOOP
        assert bool(places._looks) is is_seen
        places.clear(keep=())


def test_a_model_called_without_gradients_computes_where_the_pass_is_known_to_begin(
    tmp_path: Path,
) -> None:
    """As the samples of a generator, or the aims of an older copy, in a step without a loader."""
    script = """
def train(look):
    look("loop", 0.5)
    older = Part()
    older.forward = lambda given: given("loop", 1.0)
    older(look)
    look("forward", 0.25)
"""
    places = run(tmp_path, script)
    assert places.move_to_forward(is_known=True) == 1.0
    assert {row["row"]: row["seconds"] for row in places.rows() if row["line"] == 3} == {LOOP: 0.5}
    assert not any(row["row"] == LOOP for row in places.rows() if row["line"] != 3)


def test_a_thread_is_looked_at_until_it_is_to_stop_and_epochs_starts_are_kept(
    tmp_path: Path,
) -> None:
    row = EPOCH_START
    places = Places(threading.get_ident(), lambda: row)
    places.start()
    for row in (EPOCH_START, LOOP):
        until = time.monotonic() + 60
        while row not in {found["row"] for found in places.rows()} and time.monotonic() < until:
            time.sleep(0.01)
    places.stop()
    for thread in threading.enumerate():
        if thread.name == "stash-places":
            thread.join()
    assert {found["row"] for found in places.rows()} == {EPOCH_START, LOOP}
    assert min(places.held[EPOCH_START], places.held[LOOP]) > 0
    places.clear(keep=(EPOCH_START,))
    assert {found["row"] for found in places.rows()} == {EPOCH_START}


def test_what_is_seen_while_the_training_thread_forgets_is_no_error_of_the_jobs(
    tmp_path: Path,
) -> None:
    """As the thread that looks does between any two of the training thread's instructions."""
    places, names = Places(threading.get_ident(), lambda: LOOP), dict[str, object]()

    class Row(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            names["look"](f"row {len(places._looks)}")  # type: ignore[operator]
            return False

    script = "def look(row):\n    add(row)\n"
    names["add"] = lambda row: places.add(row, sys._getframe(1), 1.0)
    exec(compile(script, str(tmp_path / "train.py"), "exec"), names)
    for row in (LOOP, Row("one"), FORWARD):
        names["look"](row)  # type: ignore[operator]
    places.clear(keep=(EPOCH_START,))
    assert places.rows() == []
    names["look"](Row("one"))  # type: ignore[operator]
    places.move_to_loop()


def test_a_row_seen_for_the_first_time_while_looks_are_counted_is_no_error_of_the_jobs() -> None:
    """As at a loop's begin, where rows are few."""
    places = Places(threading.get_ident(), lambda: LOOP)

    class Seen(list[float]):
        def __len__(self) -> int:
            places._seen[f"row {len(places._seen)}"].append(1.0)
            return super().__len__()

    places._seen[LOOP] = Seen([1.0])
    places._seen[INPUT] = Seen([1.0])
    places.mark_loop()
    places.move_to_evaluation()
    places.fit({LOOP: 1.0, INPUT: 1.0})
    places.clear(keep=())


def test_a_model_that_does_not_train_is_known_by_the_line_that_calls_it(tmp_path: Path) -> None:
    """Also where it is a part of a model that does, whose own line is another."""
    script = """
import torch
class Shown(torch.nn.Linear):
    def forward(self, look):
        look("forward", 1.0)
class Model(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part, self.head = part, torch.nn.Linear(1, 1)
    def forward(self, look):
        self.part(look)
def train(look):
    frozen = Shown(1, 1).requires_grad_(False)
    frozen(look)
    torch.nn.Sequential(Shown(1, 1))(look)
    Model(frozen)(look)
"""
    places = run(tmp_path, script)
    (found,) = [row for row in places.rows() if row["line"] == 5]
    assert found["seconds"] == 3
    assert sum(seconds for look, seconds in places._looks.items() if look.is_frozen) == 1


def test_looks_stand_for_the_seconds_of_their_row_however_often_it_was_seen() -> None:
    """Of 1 s of input ten looks saw 10 s, of 6 s of loop thirty saw 3: the latter are at the script's two lines."""
    places, names = Places(threading.get_ident(), lambda: LOOP), dict[str, object]()
    exec(
        compile(
            "import sys\ndef first():\n    return sys._getframe()\nframe = first()",
            __file__,
            "exec",
        ),
        names,
    )
    frame = names["frame"]
    assert isinstance(frame, FrameType)
    for row, looks, seconds in ((INPUT, 10, 1.0), (LOOP, 30, 0.1), (EVALUATION, 10, 1.0)):
        for _ in range(looks):
            places.add(row, frame, seconds)
    places.fit({INPUT: 1.0, LOOP: 6.0, EVALUATION: 3.0})
    found = {row["row"]: row["seconds"] for row in places.rows()}
    # what comes now and then is as seen
    assert found == pytest.approx({INPUT: 1.0, LOOP: 6.0, EVALUATION: 10.0})


def test_lines_of_a_second_optimizers_pass_are_of_the_forward_pass(tmp_path: Path) -> None:
    """20 looks at its model were in the row ``loop``; by now the ledger knows that they are ``forward``."""
    script = """
class Model(Part):
    def forward(self, look):
        for _ in range(20):
            look("loop", 0.1)
def train(look):
    for _ in range(10):
        look("loop", 0.05)
    Model()(look)
"""
    places = run(tmp_path, script)
    places.move_second_passes()
    places.fit({LOOP: 0.5, FORWARD: 4.0})
    assert {row["row"]: row["seconds"] for row in places.rows()} == pytest.approx(
        {LOOP: 0.5, FORWARD: 2.0}
    )


def test_what_was_seen_in_a_loop_that_was_an_evaluation_is_of_that() -> None:
    """Of 5 s of forward passes 2 were before the loop; its 4 s of input are the evaluation's, too."""
    places, names = Places(threading.get_ident(), lambda: LOOP), dict[str, object]()
    exec(compile("import sys\nframe = sys._getframe()", __file__, "exec"), names)
    frame = names["frame"]
    assert isinstance(frame, FrameType)
    places.add(FORWARD, frame, 2.0)
    places.mark_loop()
    places.add(FORWARD, frame, 3.0)
    places.add(INPUT, frame, 4.0)
    places.held[FORWARD] = 0.5
    places.move_to_evaluation()
    assert places.held == {EPOCH_START: 0.0, INPUT: 0.0, FORWARD: 0.0, EVALUATION: 0.5}
    assert {row["row"]: row["seconds"] for row in places.rows()} == {FORWARD: 2.0, EVALUATION: 7.0}
    for _ in range(9):
        places.add(FORWARD, frame, 2.0)
    places.fit({FORWARD: 5.0})  # ten looks, of which none was of the evaluation
    assert {row["row"]: row["seconds"] for row in places.rows()} == {FORWARD: 5.0, EVALUATION: 7.0}


def test_the_interpreter_changes_hands_sooner_only_while_it_is_looked_and_no_thread_of_the_script_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A progress bar's thread waits; what a thread did that nobody counts is not known."""
    seconds = {"waits": 1e-9, "works": 1e3}
    monkeypatch.setattr(stack_looks.run_queue, "seconds_of_threads", seconds.copy)
    monkeypatch.setattr(stack_looks.run_queue, "list_others", lambda: [*seconds])
    before = sys.getswitchinterval()
    places = Places(threading.get_ident(), lambda: LOOP)
    places.start()
    assert sys.getswitchinterval() == before
    places.stop()
    del seconds["works"]
    places.start()
    assert sys.getswitchinterval() < before
    monkeypatch.setattr(stack_looks.run_queue, "list_others", lambda: ["unknown"])
    places.shorten_turns()
    assert sys.getswitchinterval() == before
    places.stop()
    assert sys.getswitchinterval() == before


def test_a_fork_has_the_scripts_interval_and_what_looks_no_more_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A watch of days looks again at every alert."""
    monkeypatch.setattr(stack_looks.run_queue, "list_others", list)
    before = sys.getswitchinterval()
    places = Places(threading.get_ident(), lambda: LOOP)
    places.start()
    try:
        child = os.fork()
        if child == 0:
            os._exit(int(sys.getswitchinterval() != before))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sys.getswitchinterval() < before
    finally:
        places.stop()
    unused = weakref.ref(Places(threading.get_ident(), lambda: LOOP))
    gc.collect()
    assert unused() is None
