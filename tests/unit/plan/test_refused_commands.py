"""What ``stash recommend``, ``whatif`` and ``check`` cannot do, each as the one sentence that they say of it.

The cases are in the golden: a command in one line, what it says in the next. ``PYTHONPATH=src:tests/support python
tests/unit/plan/test_refused_commands.py`` asks all of them again; look at the diff. A new case is a new line.
"""

import io
import shlex
import tempfile
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

import plan_builder
import pytest
from checked_plans import later
from documentation import inside
from forecast_profiles import cpu_job, gpu_job
from probe_builder import p3_8xlarge, probe
from profile_builder import build

from stash.cli.main import main
from stash.core.artefact import save
from stash.plan.records import save_plan

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "refused.txt"
BOX = "instances:\n  - {name: box, gpu: %s, price: %s}\n"
OWN = {
    "twice": "gpus:\n  - {name: X1, memory: 24GB}\n  - {name: X1, memory: 80GB}\n"
    + BOX % ("X1", "$2/h"),
    "hole": "gpus:\n  - {name: X1, memory: 24GB}\n" + BOX % ("X1", "$2/h"),
    "free": BOX % ("T4", "-$2/h"),
    "part": BOX % ("A100-SXM4-80GB, gpu_memory: 24GB", "$2/h"),
}


def lay_out(folder):
    """The files that the commands name."""
    save(gpu_job(), folder / "gpu.stash.json")
    save(cpu_job(), folder / "cpu.stash.json")
    save(build({"solo": [0.1]}, batch=None, workload={"loaders": ()}), folder / "bare.stash.json")
    save(later(), folder / "rented.stash.json")
    save_plan(plan_builder.plan(), folder / "a.plan.json")
    save(probe(p3_8xlarge()), folder / "vm.host.json")
    for name, text in OWN.items():
        (folder / f"{name}.yaml").write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("refused")
    lay_out(place)
    return place


def ask(folder, typed):
    """What it says on standard error, if it is refused."""
    printed = io.StringIO()
    with (
        inside(folder),
        mock.patch("sys.argv", ["stash", *shlex.split(typed)]),
        redirect_stderr(printed),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return printed.getvalue() if ended.value.code == 2 else f"exit code {ended.value.code}\n"


def read_cases():
    commands = GOLDEN.read_text().split("$ stash ")[1:]
    return dict(command.split("\n", 1) for command in commands)


@pytest.mark.parametrize("typed", read_cases())
def test_what_cannot_be_is_refused_in_one_sentence(folder, typed):
    printed = ask(folder, typed)
    assert printed == read_cases()[typed]
    assert printed.startswith("error: ")
    assert printed.count("\n") == 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        lay_out(Path(place))
        printed = {typed: ask(Path(place), typed) for typed in read_cases()}
    GOLDEN.write_text("".join(f"$ stash {typed}\n{text}" for typed, text in printed.items()))
