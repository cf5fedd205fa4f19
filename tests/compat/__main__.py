"""``python -m tests.compat``: real projects under Stash, one after the other, and the table of what came of it.

Environments and data go to a cache outside the repository; a second run reuses them. Rows are printed as they come
and kept, so that ``--only timm`` renews one row of the table.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.compat import data, environments, table
from tests.compat.projects import PROJECTS
from tests.compat.runs import Row, run


def main():
    """Run the matrix; the exit code counts nothing, the table tells."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    names = ", ".join(project.key for project in PROJECTS)
    parser.add_argument(
        "--only", nargs="+", metavar="PROJECT", help=names, choices=[p.key for p in PROJECTS]
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "stash-compat")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each profile")
    parser.add_argument(
        "--table", action="store_true", help="print what was found before, and run nothing"
    )
    args = parser.parse_args()
    cache = args.cache
    cache.mkdir(parents=True, exist_ok=True)
    if not args.table:
        below = environments.base(cache)
        pictures = data.make(cache / "data")
        for project in PROJECTS:
            if args.only is None or project.key in args.only:
                row = _row(project, below, pictures, cache, args.budget)
                (_work(cache, project) / "row.json").write_text(json.dumps(asdict(row)))
                print(table.line(row), file=sys.stderr, flush=True)
    kept = [_work(cache, project) / "row.json" for project in PROJECTS]
    print(table.markdown([_row_of(path) for path in kept if path.exists()]))
    return 0


def _work(cache, project):
    return cache / "runs" / project.key


def _row(project, below, pictures, cache, budget):
    work = _work(cache, project)
    work.mkdir(parents=True, exist_ok=True)
    try:
        where = environments.layer(project.key, project.requirements, below, cache)
    except subprocess.CalledProcessError:
        return Row(
            project.key, " ".join(project.requirements), "", trouble=("could not be installed",)
        )
    return run(project, where, pictures, work, budget)


def _row_of(path):
    fields = json.loads(path.read_text())
    return Row(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
    )


if __name__ == "__main__":
    sys.exit(main())
