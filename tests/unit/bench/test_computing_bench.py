"""What the truth of a row is, of jobs that time themselves."""

from __future__ import annotations

import pytest

from bench.truth.computing import take_differences

ROWS = {"epoch start": 5.0, "loop": 1.0, "compute": 4.0, "input": 6.0}


@pytest.mark.parametrize(
    ("without_restarts", "starts", "waits"),
    [(None, 5.0, 7.0), ({"epoch start": 1.0, "loop": 1.0, "compute": 4.0, "input": 2.0}, 9.0, 3.0)],
)
def test_a_row_is_what_the_job_is_faster_by_without_it(without_restarts, starts, waits):
    found = take_differences(
        ROWS, {"epoch start": 0.0, "loop": 1.0, "compute": 3.0, "input": 0.0}, without_restarts
    )
    assert found == {"epoch start": starts, "loop": 1.0, "compute": 3.0, "input": waits}
    assert sum(found.values()) == sum(ROWS.values())
