"""The version of this Stash, which every artefact keeps, and how pip installs the same one elsewhere."""

__version__ = "0.1.0"
_REPOSITORY = "git+https://github.com/stash-ddl/stash"


def install_requirement(extra: str = "") -> str:
    """What pip installs this version by: its repository, since nobody has registered the name in an index yet."""
    extras = f"[{extra}]" if extra else ""
    return f"stash-ddl{extras} @ {_REPOSITORY}@v{__version__}"
