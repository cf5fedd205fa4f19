"""``stash fix`` on real scripts: a planted fault found, proven, patched, and the patched script run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stash.core.fix_records import FILE, Fix, Tried

pytestmark = pytest.mark.slow  # each starts a script many times
SCRIPT = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.005)
        numbers = torch.full((64,), index / 1e5) + 0.1 * torch.randn(64)
        return numbers, numbers.mean().unsqueeze(0)


loader = DataLoader(Samples(), batch_size=8, shuffle=True, num_workers=0)  # as it came
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def fix(folder, *words, **variables):
    command = (sys.executable, "-m", "stash", "fix", *words)
    new = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=600, env=new
    )


OF_SPLITS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from PIL import Image
import time


class Pictures(Dataset):
    def __init__(self, first):
        self.first = first

    def __len__(self):
        return 32

    def __getitem__(self, index):
        with open("made.txt", "a") as file:
            file.write(f"{self.first + index} ")
        time.sleep(0.01)
        return list(Image.new("L", (4, 4), self.first + index).tobytes())


def loader(first):
    return DataLoader(Pictures(first), batch_size=8, num_workers=1, collate_fn=torch.tensor)


training, validation = loader(0), loader(100)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(100_000):
    for batch in training:
        loss = model(batch / 255).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if epoch % 100 == 0:
        with torch.no_grad():
            validated = sorted(int(each) for batch in validation for each in batch[:, 0])
        print("validated on", validated[0], "to", validated[-1])
"""


def test_samples_are_kept_for_each_data_set_and_nothing_stays_after_the_run(tmp_path):
    # GIVEN a script whose training and validation are made by one line, and which decodes them in every epoch
    (tmp_path / "train.py").write_text(OF_SPLITS)
    before = list(Path("/dev/shm").glob("*samples*"))
    # WHEN keeping samples is tried, found good and applied
    done = fix(tmp_path, "--try", "cache", "--budget", "4m", "--apply", "train.py")
    assert done.returncode == 0, done.stderr
    record = FILE.load(tmp_path / "train.fix.json")
    assert [each.knob for each in record.kept] == ["cache"], done.stdout
    assert record.together.value > 0.25 * record.step_seconds
    # THEN two starts of the patched script make each sample once, and read none of another data set
    for _ in range(2):
        (tmp_path / "made.txt").unlink()
        short = (tmp_path / "train.py").read_text().replace("range(100_000)", "range(3)")
        (tmp_path / "short.py").write_text(short)
        done = subprocess.run(
            [sys.executable, "short.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("validated on 100 to 131\n", "")
        made = sorted(map(int, (tmp_path / "made.txt").read_text().split()))
        assert made == [*range(32), *range(100, 132)]
    assert list(Path("/dev/shm").glob("*samples*")) == before


def test_a_loader_without_workers_gets_some_and_the_patched_script_is_faster(tmp_path):
    # GIVEN a script whose samples arrive one after the other, 40 ms a step
    (tmp_path / "train.py").write_text(SCRIPT)
    # WHEN it is fixed, with the patch applied
    done = fix(tmp_path, "--try", "workers", "--budget", "5m", "--apply", "train.py")
    assert done.returncode == 0, done.stderr
    # THEN workers are kept, the same training is proven bit for bit, and one line has changed
    record = FILE.load(tmp_path / "train.fix.json")
    (kept,) = record.kept
    assert kept.knob == "workers"
    assert kept.proof.text.endswith("losses the same, bit for bit")
    assert kept.proof.losses >= 8
    assert kept.proof.batches >= 8
    assert record.repeats
    assert record.together.value > 0.25 * record.step_seconds
    after = (tmp_path / "train.py").read_text()
    workers = re.search(r"num_workers=(\d+)\)  # as it came", after)
    assert after.replace(f"num_workers={workers[1]}", "num_workers=0") == SCRIPT
    assert (tmp_path / "train.py.orig").read_text() == SCRIPT
    # AND the patched script runs
    short = after.replace("return 100_000", "return 64")
    (tmp_path / "short.py").write_text(short)
    subprocess.run([sys.executable, "short.py"], cwd=tmp_path, check=True, timeout=120)


def test_a_script_that_cannot_start_again_is_told_and_left_as_it_is(tmp_path):
    # GIVEN a script that trains under a profile, and fails at every later start
    refusing = (
        "import json, os\nassert json.load(open(os.environ['STASH_ORDERS']))['trial'] is None, 'ran before'\n"
        + SCRIPT
    )
    (tmp_path / "train.py").write_text(refusing)
    # WHEN it is fixed
    done = fix(tmp_path, "--budget", "1m", "train.py")
    # THEN one sentence says so, nothing is written
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "error: train.py cannot be started again, so nothing was tried: "
    )
    assert "ran before" in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == refusing


def test_a_script_that_takes_long_to_start_is_refused_within_the_time(tmp_path):
    # GIVEN a script that needs 8 s before it trains
    (tmp_path / "train.py").write_text("import time\ntime.sleep(8)\n" + SCRIPT)
    # WHEN it is fixed within less than a search takes
    began = time.monotonic()
    done = fix(tmp_path, "--budget", "25s", "train.py")
    # THEN that is kept to, but for the time in which the last launch ends, and said
    assert time.monotonic() - began < 40
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "error: --budget is over before train.py can be tried"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_script_that_resumes_from_its_checkpoint_starts_afresh_each_time(tmp_path):
    # GIVEN a script that saves after some steps, and trains no more where it finds that
    resuming = SCRIPT.replace(
        "model = nn",
        "import os\nassert not os.path.exists('runs'), 'resumed'\nos.mkdir('runs')\nmodel = nn",
        1,
    )
    resuming = resuming.replace(
        "optimizer.zero_grad()",
        "optimizer.zero_grad()\n        torch.save(model.state_dict(), 'runs/last.pt')",
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(resuming)
    # WHEN changes are tried, the profile and every trial in a start of its own, in a folder among temporary ones
    done = fix(work, "--try", "workers", "--budget", "90s", "train.py", TMPDIR=str(tmp_path))
    # THEN none found the checkpoint of another, and none is left
    assert done.returncode == 0, done.stderr
    record = FILE.load(work / "train.fix.json")
    assert not any(
        each.failure for each in record.launches if "the time given was over" not in each.failure
    )
    assert len(record.launches) > 1
    assert sorted(path.name for path in work.iterdir() if path.suffix != ".patch") == [
        "train.fix.json",
        "train.py",
    ]


def test_ctrl_c_in_the_middle_leaves_a_record_and_the_script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = (
        sys.executable,
        "-m",
        "stash",
        "fix",
        "--try",
        "workers,fused",
        "--budget",
        "5m",
        "--json",
        "train.py",
    )
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True)
    deadline = time.monotonic() + 200
    while (tmp_path / "log").read_text().count("  trying ") < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, (tmp_path / "log").read_text()
    record = json.loads(out)
    assert record["interrupted"]
    assert record["together"] is None
    assert (tmp_path / "train.py").read_text() == SCRIPT
    assert FILE.load(tmp_path / "train.fix.json").interrupted


def test_run_sets_what_is_set_from_outside_and_nothing_else(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(os.environ['OMP_NUM_THREADS'], sys.argv[1:])\n"
    )
    kept = Tried(
        name="threads=1",
        knob="threads",
        text="threads",
        effect="rounding",
        standing="kept",
        written="setting",
        variables={"OMP_NUM_THREADS": "1"},
    )
    record = Fix(
        stash_version="0",
        created="2026-11-25",
        workload="train.py",
        command=("train.py",),
        ranks=1,
        error_rate=0.05,
        step_seconds=0.1,
        tried=(kept,),
        launches=(),
        elapsed_seconds=1.0,
    )
    FILE.save(record, tmp_path / "train.fix.json")
    command = (
        sys.executable,
        "-m",
        "stash",
        "run",
        "--with",
        "train.fix.json",
        "train.py",
        "--lr",
        "0.1",
    )
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "1 ['--lr', '0.1']\n"), done.stderr
