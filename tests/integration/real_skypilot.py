"""A real SkyPilot, if there is one: whether it takes tasks and commands. Nothing is launched, and no cloud is asked.

``STASH_SKY_PYTHON`` names a Python that has it (``pip install skypilot==0.14.1`` into an environment of its own). It
looks up instance types in catalogs that it downloads, so resources are held against its schema alone.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

PYTHON = os.environ.get("STASH_SKY_PYTHON") or (sys.executable if find_spec("sky") else "")
_REAL = """
import json, sys, jsonschema
from sky import Task
from sky.client.cli import command
from sky.data import storage
from sky.utils import schemas

for task in json.loads(sys.argv[1]):
    jsonschema.validate(task, schemas.get_task_schema())
    resources = task.pop("resources")
    jsonschema.validate(resources, schemas.get_resources_schema())
    mounts = task.get("file_mounts") or {}
    for path in [path for path, source in mounts.items() if isinstance(source, dict)]:
        bucket = mounts.pop(path)  # which would be looked up in its cloud
        storage.Storage._validate_source(bucket["source"], storage.StorageMode(bucket["mode"]), False)
    given = [(name, "value") for name in task.get("secrets") or {}]  # as the command line gives them
    made = Task.from_yaml_config(dict(task), secrets_overrides=given or None)
    assert dict(made.file_mounts or {}) == mounts  # of files that are there
    assert (made.to_yaml_config().get("secrets") or {}) == dict(given)
    assert (made.num_nodes or 1, made.run, made.setup) == (task.get("num_nodes", 1), task["run"], task["setup"])
for program, name, *words in json.loads(sys.argv[2]):
    assert program == "sky", program
    group = getattr(command, name)
    if hasattr(group, "commands"):
        name, *words = words
        group = group.commands[name]
    group.make_context(name, words)
"""


def ask_skypilot(folder, tasks, commands):
    """What it says to them: exit code 0 if it takes all."""
    alone = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    }
    words = [PYTHON, "-c", _REAL, json.dumps(tasks), json.dumps(commands)]
    return subprocess.run(
        words, env=alone, cwd=folder, capture_output=True, text=True, check=False, timeout=240
    )
