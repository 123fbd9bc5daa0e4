"""The command `pg-memoir`, also as `python -m pg_memoir_cli`."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code. A hook of an agent takes a short way, which imports little."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:2] == ["agents", "hook"]:
        from .agents.hook import main as run_hook

        return run_hook(given[2:])
    from .app import main as run

    return run(given)


if __name__ == "__main__":
    sys.exit(main())
