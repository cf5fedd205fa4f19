"""Disks: where a profile is to be saved when it is done, and what became of that place meanwhile.

Whatever did, what was measured is somewhere, and the user is told where; nothing that others made is written to.
"""

import subprocess

import stash
from tests.faults.case import Case, Expected
from tests.faults.cases.environments import NOT_OMNIPOTENT, PROFILE, is_root, paced

LONG = ("--budget", "10", "--noise", "0.05")
PRECIOUS = "somebody else's"


def profiles_in(folder):
    """Names of the profiles there that can be read and have blocks."""
    files = [
        path for path in folder.glob("*.stash.json") if path.is_file() and not path.is_symlink()
    ]
    return sorted(
        path.name for path in files if path.read_text() != PRECIOUS and stash.load(path).blocks
    )


def has(*names):
    """These profiles, and no others, are in the working folder."""

    def check(outcome, room):
        found = profiles_in(room.work)
        return (
            None
            if found == sorted(names)
            else f"the working folder has {found}, not {sorted(names)}"
        )

    return check


def runs_folder():
    for what, name in {"remove-run": "of the run", "remove-launch": "of the launch"}.items():
        yield Case(
            "disks",
            f"a job removes the folder {name}",
            ("hostile.py", what),
            LONG,
            expected=Expected(
                (1,),
                ("the folder of the run, .*, was removed while hostile.py ran",),
                rounds=1,
                leaves=("stash-*",),
            ),
            pace="fast" if what == "remove-run" else "slow",
        )
    yield Case(
        "disks",
        "a job empties the temporary folder",
        ("hostile.py", "remove-temporary"),
        LONG,
        expected=Expected((1,), ("was removed while hostile.py ran",), rounds=1),
    )


def measured_is_in(folder):
    """The profile is in that folder, and standard error says so."""

    def check(outcome, room):
        names = profiles_in(folder(room))
        if len(names) != 1:
            return f"{folder(room)} has the profiles {names}"
        return (
            None if str(folder(room) / names[0]) in outcome.stderr else f"{names[0]} is not named"
        )

    return check


def with_output(*options):
    """A profile by one to whom permissions mean something, with ``{out}`` in its words for a folder outside."""

    def program(room):
        folder = room.outside / "out"
        folder.mkdir(exist_ok=True)
        return (*NOT_OMNIPOTENT, *(word.format(out=folder, work=room.work) for word in options))

    return program


SHORT = (*PROFILE[:4], "--budget", "6", "--noise", "0.05")
ON_SMALL_DISK = (
    "unshare",
    "--mount",
    "bash",
    "-c",
    'mount -t tmpfs -o size=64k none {out} && exec "$@"',
    "bash",
    *SHORT,
)


def places():
    kept = ("What was measured is in ",)
    lost = {"remove-output": "is removed", "close-output": "becomes read-only"}
    for what, happens in lost.items():
        yield Case(
            "disks",
            f"the folder of -o {happens} while it measures",
            needs=is_root,
            program=with_output(*SHORT, "-o", "{out}/run.stash.json", "hostile.py", what, "{out}"),
            check=measured_is_in(lambda room: room.work),
            expected=Expected((2,), (*kept, "cannot write"), rounds=0),
        )
    yield Case(
        "disks",
        "the disk of -o fills up while it measures",
        needs=is_root,
        program=with_output(
            *ON_SMALL_DISK, "-o", "{out}/run.stash.json", "hostile.py", "fill", "{out}/big"
        ),
        check=measured_is_in(lambda room: room.work),
        expected=Expected((2,), (*kept, "no space left"), rounds=0),
    )
    yield Case(
        "disks",
        "the working folder becomes read-only while it measures",
        needs=is_root,
        program=with_output(*SHORT, "hostile.py", "close-output", "{work}"),
        check=measured_is_in(lambda room: room.temporary),
        expected=Expected(
            (2,), (*kept, "no permission"), writes=("hostile.stash.json",), leaves=("*.stash.json",)
        ),
    )


def default_name(*words, at_once=1):
    """Profiles under default names, one or several side by side in one folder."""

    def program(room):
        filled = [word.format(outside=room.outside) for word in words]
        command = subprocess.list2cmdline([*SHORT, *filled])
        return ("bash", "-c", " & ".join([command] * at_once) + "; code=$?; wait; exit $code")

    return program


def planted(name):
    """A link in the working folder to a file of somebody's."""

    def prepare(room):
        (room.outside / "precious").write_text(PRECIOUS)
        (room.work / name).symlink_to(room.outside / "precious")

    return prepare


def precious(then):
    """The file that a link led to was not written to."""

    def check(outcome, room):
        path = room.outside / "precious"
        changed = path.exists() and path.read_text() != PRECIOUS
        return "what a link led to was written to" if changed else then(outcome, room)

    return check


def names():
    writes = ("slow*.stash.json", "hostile*.stash.json")
    yield Case(
        "disks",
        "three profiles at once under default names",
        program=default_name("slow.py", at_once=3),
        check=has("slow.stash.json", "slow-2.stash.json", "slow-3.stash.json"),
        expected=Expected(writes=writes, seconds=120),
        pace="fast",
    )
    yield Case(
        "disks",
        "a name that is taken while it measures",
        program=default_name("hostile.py", "take-name", "hostile.stash.json"),
        check=lambda outcome, room: (
            None
            if (room.work / "hostile.stash.json").read_text() == PRECIOUS
            and "hostile-2" in outcome.stdout
            else "the name was taken from somebody"
        ),
        expected=Expected(writes=writes),
    )
    yield Case(
        "disks",
        "a link that is planted under the default name",
        prepare=planted("slow.stash.json"),
        program=default_name("slow.py"),
        check=precious(has("slow-2.stash.json")),
        expected=Expected(writes=writes),
    )
    yield Case(
        "disks",
        "a link that is planted while it measures",
        program=default_name(
            "hostile.py", "plant-link", "hostile.stash.json", "{outside}/precious"
        ),
        check=precious(has("hostile-2.stash.json")),
        expected=Expected(writes=writes),
    )
    yield Case(
        "disks",
        "-o names a link to somebody's file",
        ("slow.py",),
        prepare=planted("run.stash.json"),
        check=precious(has("run.stash.json")),
        expected=Expected(rounds=1),
    )
    for what, words in {
        "/dev/full": "is not a regular file",
        "no/such/run.json": "there is no folder",
    }.items():
        yield paced(
            Case(
                "disks", f"-o {what}", ("slow.py",), ("-o", what), expected=Expected((2,), (words,))
            )
        )


CASES = [*runs_folder(), *places(), *names()]
