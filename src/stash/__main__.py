"""``python -m stash`` is the ``stash`` command."""

from stash.cli.main import main

if __name__ == "__main__":
    main()
