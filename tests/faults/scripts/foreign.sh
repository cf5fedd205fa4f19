# A job whose launcher is in Python too, of the system: it must neither break nor find Stash's own packages.
set -e
env -u PYTHONHOME "$SYSTEM_PYTHON" -c 'import importlib.util as u; assert u.find_spec("typer") is None, "found what it was not given"'
exec python train.py
