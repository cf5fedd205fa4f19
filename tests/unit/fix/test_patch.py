"""What is kept, written down and applied, with a way back."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_source import site
from test_space import of_collector, of_workers

from stash.core.errors import UserError
from stash.fix.patch import Patch, apply
from stash.fix.script_changes import Around, ScriptChange, Site, sites_of
from stash.fix.space import propose_changes

SCRIPT = """import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    data,
    num_workers=0,
)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def at(path, **fields):
    found = site(path.read_text())
    return Site(**{**vars(found), "file": str(path), **fields})


def workers(path, **writes):
    return ScriptChange(
        "workers=4", "workers", "more", site=at(path), writes=writes or {"num_workers": 4}
    )


def patched(*changes):
    patch = Patch()
    assert {patch.add(each, None).way for each in changes} == {"patch"}
    return patch


def git_applies(patch, script):
    (script.parent / "it.patch").write_bytes(patch.make_diff().encode())
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "apply", "it.patch"], check=True)


def test_a_patch_is_minimal_and_git_applies_it(script):
    patch = Patch()
    assert patch.add(workers(script), None).way == "patch"
    pinned = ScriptChange("pin", "pin", "pin", site=at(script), writes={"pin_memory": True})
    line = ScriptChange("cudnn", "cudnn", "cudnn", line="torch.backends.cudnn.benchmark = True")
    assert patch.add(pinned, None).way == patch.add(line, str(script)).way == "patch"
    diff = patch.make_diff()
    assert [
        each for each in diff.splitlines() if each[:1] in "+-" and each[:3] not in ("+++", "---")
    ] == [
        "+torch.backends.cudnn.benchmark = True",
        "+",
        "-    num_workers=0,",
        "+    num_workers=4,",
        "+    pin_memory=True,",
    ]
    git_applies(patch, script)
    assert script.read_text() == patch.edited_texts()[str(script)]


def test_applying_keeps_a_copy(script):
    script.chmod(0o640)
    patch = patched(workers(script))
    assert apply(patch, patch.source_digests()) == ["Changed train.py; as it was: train.py.orig"]
    assert "num_workers=4" in script.read_text()
    assert script.stat().st_mode & 0o777 == 0o640
    assert (script.parent / "train.py.orig").read_text() == SCRIPT


def test_a_script_that_has_changed_since_is_left_alone(script):
    patch = patched(workers(script))
    sources = patch.source_digests()
    script.write_text(SCRIPT + "# mine\n")
    with pytest.raises(
        UserError, match=r"train\.py has changed since it was measured; nothing was applied"
    ):
        apply(patch, sources)
    assert script.read_text() == SCRIPT + "# mine\n"


def test_a_script_that_may_not_be_written_is_left_alone(script, monkeypatch):
    patch = patched(workers(script))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != script)
    with pytest.raises(UserError, match=r"no permission to write train\.py; nothing was applied"):
        apply(patch, patch.source_digests())
    assert script.read_text() == SCRIPT
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_where_no_copy_can_be_kept_nothing_is_changed(script, monkeypatch):
    # GIVEN two files to change, of which the second's copy finds no room
    other = script.with_name("other.py")
    other.write_text(SCRIPT)
    patch = Patch()
    for path in (script, other):
        patch.add(workers(path), None)

    def full(path):
        if path == script:
            return path
        raise UserError("no copy could be kept (No space left on device); nothing was applied")

    monkeypatch.setattr("stash.fix.patch._keep_copy", full)
    with pytest.raises(UserError, match="nothing was applied"):
        apply(patch, patch.source_digests())
    assert script.read_text() == other.read_text() == SCRIPT


def test_a_call_in_a_library_is_told_with_where_it_stands(script):
    site = at(script, file="/usr/lib/python3/site-packages/lib.py")
    in_library = ScriptChange("x", "x", "x", site=site, writes={"num_workers": 4})
    assert (
        "lib.py:4 set num_workers=4: no patch does, as it is in a library"
        in Patch().add(in_library, None).how
    )


def test_what_else_is_set_in_the_environment_stands_beside_the_patch(script):
    both = replace(workers(script), variables={"OMP_NUM_THREADS": "1"})
    patch = Patch()
    found = patch.add(both, None)
    assert (found.way, found.how) == ("patch", "and set in the environment: OMP_NUM_THREADS=1")
    assert "+    num_workers=4," in patch.make_diff()


@pytest.mark.parametrize(
    ("text", "writes", "way", "how"),
    [
        (
            'p.add_argument("--jobs")\nx = DataLoader(data, num_workers=args.jobs)\n',
            4,
            "command",
            "--jobs 4",
        ),
        (
            "x = DataLoader(data, num_workers=cfg.data.jobs)\n",
            4,
            "command",
            "jobs: 4 in the script's configuration",
        ),
        (
            'p.add_argument("--ahead", type=int)\nx = DataLoader(data, num_workers=2, prefetch_factor=args.ahead)\n',
            0,
            "explained",
            "at train.py:2 set num_workers=0: no patch does, as None cannot be typed for --ahead",
        ),
        (
            "x = DataLoader(data, **options, **more)\n",
            4,
            "explained",
            "at train.py:1 set num_workers=4: no patch does, as its arguments come from several mappings (**)",
        ),
    ],
)
def test_what_no_patch_can_write_is_told(script, text, writes, way, how):
    script.write_text(text)
    patch = Patch()
    found = patch.add(workers(script, num_workers=writes), None)
    assert (found.way, found.how, patch.make_diff()) == (way, how, "")


def test_all_calls_that_a_trial_changes_are_written_or_none(script):
    text = "x = x.to(device)\ny = y.to(device)\n"
    script.write_text(text)
    first, second = (
        Site("copy", f"{line}", str(script), line, line, 4, 16, {"non_blocking": False})
        for line in (1, 2)
    )
    change = ScriptChange(
        "non_blocking", "n", "n", site=first, also=(second,), writes={"non_blocking": True}
    )
    patch = patched(change)
    assert patch.edited_texts()[str(script)] == text.replace(
        "(device)", "(device, non_blocking=True)"
    )
    gone = replace(change, also=(replace(second, line=1, column=90),))
    patch = Patch()
    assert patch.add(gone, None).way == "explained"
    assert patch.make_diff() == ""


def test_pinning_is_written_where_the_loader_is_built_and_where_batches_are_copied(script):
    text = "x = DataLoader(data)\nx = x.cuda()\n"
    script.write_text(text)
    loader = Site("loader", "l", str(script), 1, 1, 4, 20, {"pin_memory": False})
    copy = Site("copy", "c", str(script), 2, 2, 4, 12, {"non_blocking": False})
    change = ScriptChange(
        "pin", "pin", "p", site=loader, writes={"pin_memory": True}, copies=(copy,)
    )
    patch = patched(change)
    assert (
        patch.edited_texts()[str(script)]
        == "x = DataLoader(data, pin_memory=True)\nx = x.cuda(non_blocking=True)\n"
    )


@pytest.mark.parametrize(
    ("call", "writes", "after"),
    [
        (
            "DataLoader(data, 32, shuffle=True)",
            {"batch_size": 64},
            "DataLoader(data, 64, shuffle=True)",
        ),
        (
            "DataLoader(data, num_workers=2, prefetch_factor=4)",
            {"num_workers": 0},
            "DataLoader(data, num_workers=0, prefetch_factor=None)",
        ),
        # arguments of a mapping are put over in the call
        (
            "DataLoader(data, **options)",
            {"num_workers": 4, "pin_memory": True},
            "DataLoader(data, **dict(options, num_workers=4, pin_memory=True))",
        ),
        (
            "DataLoader(data, **options)",
            {"num_workers": 0},
            "DataLoader(data, **dict(options, num_workers=0, prefetch_factor=None))",
        ),
        # what starts workers goes with them
        (
            'DataLoader(data, num_workers=2, multiprocessing_context="spawn")',
            {"num_workers": 0},
            "DataLoader(data, num_workers=0, multiprocessing_context=None)",
        ),
    ],
)
def test_what_pytorch_refuses_beside_a_new_value_goes(script, call, writes, after):
    script.write_text(f"x = {call}\n")
    values = {"multiprocessing_context": "spawn"} if "spawn" in call else {}
    change = replace(workers(script, **writes), site=at(script, values=values))
    assert patched(change).edited_texts()[str(script)] == f"x = {after}\n"


def test_what_would_be_no_python_is_explained_and_the_others_stay(script):
    # GIVEN a loader of nothing but its data, whose workers are kept, and then its samples
    script.write_text("x = DataLoader(data)\n")
    patch = Patch()
    assert patch.add(workers(script), None).way == "patch"
    around = Around("dataset", "CachedSamples(", ', "folder")')
    cache = ScriptChange(
        "cache", "cache", "samples kept", site=at(script), line="import os", around=around
    )
    assert patch.add(cache, None).how.startswith("samples kept: the patch of it would be no Python")
    assert patch.edited_texts()[str(script)] == "x = DataLoader(data, num_workers=4)\n"


def test_waits_that_are_all_of_a_block_are_not_taken_out(script):
    script.write_text("def sync():\n    a()\n    b()\n")
    sites = tuple(Site("wait", f"{line}", str(script), line, line, 4, 7, {}) for line in (2, 3))
    patch = Patch()
    found = patch.add(ScriptChange("no_waits", "waits", "waits", removes=sites), None)
    assert (found.way, patch.make_diff()) == ("explained", "")


def test_a_script_has_one_name_in_a_patch_whatever_links_lead_to_it(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "link.py").symlink_to("train.py")
    recorded = {**vars(site(SCRIPT)), "file": str(tmp_path / "link.py")}
    (found,) = sites_of({"sites": {"a": recorded}})
    assert found.file == str(tmp_path / "train.py")


def test_what_is_set_from_outside_is_no_edit():
    found = Patch().add(
        ScriptChange("gloo", "gloo", "gloo", variables={"GLOO_SOCKET_IFNAME": "lo"}), None
    )
    assert (found.way, found.how) == ("setting", "GLOO_SOCKET_IFNAME=lo")


def apply_from_the_root():
    """As the page says; skips the test where nobody has the program."""
    if shutil.which("patch") is None:
        pytest.skip("no program patch")
    subprocess.run("patch -s -d / -p1 < it.patch", shell=True, check=True)


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT.replace("\nloader", "\x0c\n# \u2028 \x85\nloader"),
        "\ufeff" + SCRIPT,
        SCRIPT.rstrip("\n"),
    ],
)
def test_a_patch_of_any_text_is_one_that_git_applies(script, text):
    script.write_bytes(text.encode())
    found = Site(**{**vars(site(text.removeprefix("\ufeff"))), "file": str(script)})
    git_applies(patched(ScriptChange("w", "w", "w", site=found, writes={"num_workers": 4})), script)
    assert script.read_bytes().decode() == text.replace("num_workers=0", "num_workers=4")


def test_a_patch_of_files_here_and_elsewhere_is_from_the_root(script, monkeypatch):
    # GIVEN a script in this folder whose loader's settings stand in one beside it, whose name has a space
    here = script.parent / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "train.py").write_text(SCRIPT)
    other = script.rename(script.parent / "of all.py")
    patch = Patch()
    for path in (here / "train.py", other):
        patch.add(workers(path), None)
    Path("it.patch").write_text(patch.make_diff())
    apply_from_the_root()
    assert "num_workers=4" in (here / "train.py").read_text()
    assert "num_workers=4" in other.read_text()


def test_applying_leaves_permissions_as_they_are_and_copies_no_more_readable(script):
    before = os.umask(0o077)
    try:
        for mode in (0o775, 0o600):
            script.write_text(SCRIPT)
            script.chmod(mode)
            patch = patched(workers(script))
            (note,) = apply(patch, patch.source_digests())
            copy = script.with_name(note.rpartition(" ")[2])
            assert script.stat().st_mode & 0o777 == mode
            assert copy.stat().st_mode & 0o777 & ~mode == 0
    finally:
        os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_owner_stays(script):
    os.chown(script, 1000, 1000)
    patch = patched(workers(script))
    apply(patch, patch.source_digests())
    copy = script.with_name(f"{script.name}.orig")
    assert [(each.stat().st_uid, each.stat().st_gid) for each in (script, copy)] == [
        (1000, 1000)
    ] * 2


ONE_THREAD = ScriptChange(
    "threads",
    "threads",
    "one",
    line="class OneThread:\n    pass\n",
    around=Around("worker_init_fn", "OneThread(", alone=True),
)


@pytest.mark.parametrize(
    ("call", "after"),
    [
        (
            "DataLoader(data, num_workers=2)",
            "DataLoader(data, num_workers=2, worker_init_fn=OneThread())",
        ),
        (
            "DataLoader(data, worker_init_fn=seed)",
            "DataLoader(data, worker_init_fn=OneThread(seed))",
        ),
        (
            "DataLoader(d, 8, 0, s, b, 2, c, 1, 1, 0, lambda n: seed(n))",
            "DataLoader(d, 8, 0, s, b, 2, c, 1, 1, 0, OneThread(lambda n: seed(n)))",
        ),
    ],
)
def test_what_a_script_begins_its_workers_with_is_kept_within_what_is_added(script, call, after):
    script.write_text(f"import torch\nx = {call}\n")
    patch = Patch()
    assert patch.add(replace(ONE_THREAD, site=at(script)), None).way == "patch"
    text = patch.edited_texts()[str(script)]
    assert f"x = {after}\n" in text
    assert text.index("class OneThread") < text.index("x = ")


def test_a_mapping_that_may_begin_workers_is_left_to_a_person(script):
    script.write_text("import torch\nx = DataLoader(data, **options)\n")
    written = Patch().add(replace(ONE_THREAD, site=at(script)), None)
    assert (written.way, written.how) == (
        "explained",
        "one: no patch does, as its argument worker_init_fn does not stand there",
    )


def test_what_stands_outside_the_script_is_said_in_words_and_not_as_code(script):
    script.write_text("from torch import nn\n")
    line = ScriptChange("c", "c", "c", line="class Long:\n    pass\n", by_hand="call gc.freeze()")
    assert Patch().add(line, str(script)).how == "call gc.freeze()"


BEGINS_WORKERS = """import gc
import torch
from torch.utils.data import DataLoader


class Threads:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.get_num_threads()


def begin(worker):
    torch.set_num_threads(3)


if __name__ == "__main__":
    loader = DataLoader(Threads(), num_workers=1, worker_init_fn=begin, multiprocessing_context="spawn")
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    for batch in loader:
        optimizer.step()
        print(batch.item(), gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_what_is_added_to_a_script_does_there_what_trials_did(script):
    # GIVEN a spawned worker that takes three threads, and a collector that runs
    script.write_text(BEGINS_WORKERS)
    threads = replace(
        propose_changes(of_workers(threads=5), ["worker_threads"])[0][0], site=at(script)
    )
    forked = replace(
        propose_changes(
            replace(of_workers(start_method="spawn"), epoch_seconds=1.0), ["start_method"]
        )[0][0],
        site=at(script),
    )
    seldom = next(each for each in propose_changes(of_collector())[0] if each.knob == "collector")
    # WHEN all of them are written
    patch = Patch()
    written = [patch.add(each, str(script)).way for each in (threads, forked, seldom)]
    # THEN the worker has one, and what is alive after the first step is frozen
    assert written == ["patch", "patch", "patch"]
    text = patch.edited_texts()[str(script)]
    assert 'multiprocessing_context="fork"' in text.replace("'", '"')
    script.write_text(text.replace("'fork'", "'spawn'"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 False True", "1 False True"]
