"""The ``stash`` command, also as ``python -m stash``."""

import sys


def main() -> None:
    """Run the command; an interrupt while Python still loads it is answered as one that comes later."""
    try:
        from stash.cli.main import main as command
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
