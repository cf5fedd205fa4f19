"""How the lab's training scripts end: with the mistake, whole, and its exit code."""

import pytest

from stash.core.errors import UserError
from stash.lab.training import exit_code


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("model.yaml:3: bytes: is missing\nmodel.yaml:5: jitter: is wrong",) * 2,
        (
            "Caught UserError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "w.py", line 1, in f\nstash.core.errors.UserError: the images are gone\n',
            "the images are gone",
        ),
    ],
)
def test_every_line_of_a_mistake_is_printed_and_no_traceback(capsys, message, printed):
    def run():
        raise UserError(message)

    assert exit_code(run) == 2
    assert capsys.readouterr().err == f"error: {printed}\n"
