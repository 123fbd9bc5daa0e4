"""The command `pg-memoir`, also as `python -m pg_memoir_cli`."""

import sys


def main() -> int:
    """Runs the command line. A hook of an agent takes a short way, without what other commands import."""
    if sys.argv[1:3] == ["agents", "hook"]:
        from .agents.hook import main as run_hook

        return run_hook(sys.argv[3:])
    from .app import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
