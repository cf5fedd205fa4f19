"""Options of Python that keep the agent out: seen in a command, and in a process that trains."""

import pytest

from stash.measure.launcher.job import python_options, trainer_shut_out
from stash.measure.protocol.orders import VARIABLE


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python -I train.py", "python -I"),
        ("env A=1 python3.11 -u -ES train.py", "python3.11 -ES"),
        ("/opt/bin/python -S -E -m train", "python -ES"),
        ("python -u train.py -I", None),
        ("python -c IES", None),
        ("python -X dev train.py", None),
        ("accelerate launch train.py -I", None),
    ],
)
def test_options_of_python_that_keep_the_agent_out_are_seen(command, found):
    assert python_options(command.split()) == found


def process(proc, number, command, library, orders="/run/orders.json"):
    folder = proc / str(number)
    folder.mkdir()
    (folder / "environ").write_bytes(f"HOME=/\0{VARIABLE}={orders}\0".encode())
    (folder / "cmdline").write_bytes("\0".join(command.split()).encode() + b"\0")
    (folder / "maps").write_text(f"7f00-7f01 r-xp 0 08:01 1 /opt/{library}\n")


def test_only_a_process_of_the_launch_that_can_train_counts(tmp_path):
    process(tmp_path, 1, "python -I helper.py", "libc.so")
    process(tmp_path, 2, "python train.py", "libtorch_cpu.so")
    process(tmp_path, 3, "python -I train.py", "libtorch_cpu.so", orders="/other/orders.json")
    assert trainer_shut_out("/run/orders.json", tmp_path) is None
    process(tmp_path, 4, "python -E -S train.py", "libtorch_cpu.so")
    assert trainer_shut_out("/run/orders.json", tmp_path) == "python -ES"
