"""Where Stash's options end and the job's words begin."""

from __future__ import annotations

import pytest

from stash.ui.arguments import split

TAKES = {"--budget": True, "-o": True, "--output": True, "--isolate": False, "--workload": True}


@pytest.mark.parametrize(
    ("line", "own", "kind", "words"),
    [
        ("train.py --lr 0.1", "", "script", "train.py --lr 0.1"),
        ("--budget 5 --isolate train.py -o theirs", "--budget 5 --isolate", "script", "train.py -o theirs"),
        ("--budget=5 train.py", "--budget=5", "script", "train.py"),
        ("-o out.json -m pkg.mod --budget 9", "-o out.json", "module", "pkg.mod --budget 9"),
        ("--isolate -- accelerate launch train.py", "--isolate", "command", "accelerate launch train.py"),
        ("--workload resnet18 -- --image-size 64", "--workload resnet18", "command", "--image-size 64"),
        ("--isolate", "--isolate", "none", ""),
    ],
)
def test_options_before_the_target_are_ours_and_all_after_it_is_the_jobs(line, own, kind, words):
    found = split(line.split(), TAKES)
    assert (list(found.own), found.kind, list(found.words)) == (own.split(), kind, words.split())
