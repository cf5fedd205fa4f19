"""How a cell ended, told from what its command left behind."""

from stash.study.cell_engines import SLURM_LOST
from stash.study.judgement import judge
from stash.study.study_folder import CellFolder

PREEMPTED = (
    "slurmstepd-n1: error: *** JOB 2 ON n1 CANCELLED AT 2026-11-22T17:22:25 DUE TO PREEMPTION ***\n"
)


def judged(folder, printed, code):
    (folder / "output.log").write_text(printed)
    return judge(CellFolder(folder), SLURM_LOST, code)


def test_an_interrupted_cell_is_lost(tmp_path):
    assert judged(tmp_path, "interrupted before the first round\n", 130)[0] == "lost"
    assert judged(tmp_path, "", None)[0] == "lost"


def test_a_node_that_failed_is_told_whichever_nodes_code_it_is(tmp_path):
    printed = "error: train.py failed: KeyError\ninterrupted before the first round\n"
    assert judged(tmp_path, printed, 130) == ("failed", "train.py failed: KeyError")


def test_a_job_that_slurm_started_again_is_judged_by_what_came_after(tmp_path):
    assert judged(tmp_path, PREEMPTED, 1)[0] == "lost"
    printed = PREEMPTED + "# Slurm starts it again\nerror: train.py failed: KeyError\n"
    assert judged(tmp_path, printed, 1) == ("failed", "train.py failed: KeyError")


def test_a_time_limit_is_told_with_what_to_do(tmp_path):
    printed = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T17:22:25 DUE TO TIME LIMIT ***\n"
    ending, why = judged(tmp_path, printed, 1)
    assert ending == "failed"
    assert why.endswith("`time:` gives the job more")
