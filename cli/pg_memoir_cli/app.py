"""What all commands have in common: where the database is, how errors end, and which commands there are."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from pg_memoir import Memoir, MemoirError, __version__
from pg_memoir.types import Embed

from .places import read_private_dsn

OK, FAILED, USAGE, ATTENTION = 0, 1, 2, 3
"""Exit codes: done · an error, said on standard error · called wrongly · done, but somebody has to look: conversations
that were left out, something unclear, a server that is not well."""

GROUP = "pg_memoir.commands"
"""Entry points of this group are commands too: their name → a function with typer's annotations, a typer.Typer with
subcommands, or a module with add_arguments(parser) and main(options) for argparse. These options have `private_dsn`, the
server of `pg-memoir up`, and `find_embedder`. All are imported when they are called, and for the list of commands."""

COMMAND_PACKAGES = {"gateway": "pg-memoir-gateway", "mcp": "pg-memoir-gateway"}
"""Commands that other packages bring, for whoever has not installed them."""

app = typer.Typer(
    name="pg-memoir",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Memory for AI agents that lives in PostgreSQL.

Begin with `pg-memoir up` (a private server, if you have none), `pg-memoir import chats.json --user alice`, then
`pg-memoir search alice "what she said"`. Every command explains itself: `pg-memoir search --help`.

The database: `--dsn`, else `$PG_MEMOIR_DSN`, else the server of `pg-memoir up`.

Exit codes: 0 done, 1 an error, 2 called wrongly, 3 done but somebody has to look.""",
)

Dsn = Annotated[
    str,
    typer.Option(
        "--dsn",
        envvar="PG_MEMOIR_DSN",
        metavar="DSN",
        show_default=False,
        help="Connection string or URL (default: the server of `pg-memoir up`).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
User = Annotated[str, typer.Argument(metavar="USER", help="The application's name of a user.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


class Stop(Exception):
    """Ends a command with this message on standard error, and this exit code."""

    def __init__(self, message: str, hint: str | None = None, code: int = FAILED) -> None:
        super().__init__(message)
        self.hint, self.code = hint, code


def connection_string(given: str) -> str:
    """What was given, or the private server's."""
    if given:
        return given
    if private := read_private_dsn():
        return private
    raise Stop("which database?", "give --dsn, set PG_MEMOIR_DSN, or run pg-memoir up for a private server", USAGE)


@contextmanager
def connected(dsn: str, **options: Any) -> Iterator[Memoir]:
    """The database of a command."""
    with Memoir(connection_string(dsn), min_size=0, max_size=2, **options) as memoir:
        yield memoir


def find_embedder(dsn: str) -> Embed | None:
    """Returns an embedder of questions for the private server, where that has no PL/Python to embed them itself.

    A server of somebody's own may have another model, so it gets no vector of ours. Raises psycopg.Error where the
    private server does not answer.
    """
    from .embedder import DEFAULT_MODEL, EmbedderUnavailable, load_embedder

    private = read_private_dsn()
    if not private or dsn not in ("", private) or "plpython3u" in read_extensions(private):
        return None
    with connected(private) as memoir:
        models = [model["model"] for model in memoir.embedding_progress() if model["status"] == "active"]
    if models == [DEFAULT_MODEL]:
        with suppress(ImportError, EmbedderUnavailable):
            return load_embedder()
    return None


def read_extensions(dsn: str) -> set[str]:
    import psycopg

    with psycopg.connect(dsn) as db:
        return {name for (name,) in db.execute("select extname from pg_extension")}


def find_commands() -> dict[str, EntryPoint]:
    """Commands of other installed packages."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def add_command(name: str, command: Any) -> None:
    """Makes what an entry point of GROUP names a command."""
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    elif hasattr(command, "add_arguments"):
        passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        about = (command.__doc__ or "").split(": ", 1)[-1]
        app.command(name, context_settings=passed_on, help=about)(_by_argparse(name, command))
    else:
        app.command(name)(command)


def _by_argparse(name: str, module: Any) -> Callable[[typer.Context], int]:
    """A command whose words argparse reads."""

    def run(context: typer.Context) -> int:
        parser = argparse.ArgumentParser(prog=f"pg-memoir {name}", description=module.__doc__)
        module.add_arguments(parser)
        try:
            options = parser.parse_args(context.args)
            options.private_dsn, options.find_embedder = read_private_dsn(), find_embedder
            return int(module.main(options))
        except SystemExit as end:
            raise typer.Exit(int(end.code or 0)) from end

    return run


def _add_commands(arguments: list[str]) -> None:
    """What is called is imported, and all for the list of commands, or to complete a word of it."""
    called = next((word for word in arguments if not word.startswith("-")), None)
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    for name, entry in find_commands().items():
        if name not in known and (called in (None, name)):
            try:
                add_command(name, entry.load())
            except ImportError as error:  # one that is broken leaves the others be
                if called == name:
                    raise Stop(f"{name} can't be loaded: {error}") from error
    if called in COMMAND_PACKAGES and called not in known and called not in find_commands():
        raise Stop(f"{called} is not installed", f"pip install {COMMAND_PACKAGES[called]}", USAGE)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    import psycopg

    from . import commands  # noqa: F401  (registers them)
    from .conversations import ConversationError
    from .embedder import EmbedderUnavailable

    given = sys.argv[1:] if arguments is None else arguments
    name = "pg-memoir " + next((word for word in given if not word.startswith("-")), "")
    try:
        _add_commands(given)
        answer = app(given, prog_name="pg-memoir", standalone_mode=False)
        return answer if isinstance(answer, int) else OK
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        print("Aborted.", file=sys.stderr)
        return FAILED
    except Stop as error:
        return _report_failure(name, str(error), error.hint, error.code)
    except MemoirError as error:
        return _report_failure(name, error.message, error.hint)
    except (ConversationError, EmbedderUnavailable, psycopg.Error, OSError) as error:
        if isinstance(error, BrokenPipeError):  # whoever reads has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        return _report_failure(name, str(error).strip(), None)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        error.show()  # called wrongly: typer says what lacks
        return int(error.exit_code)


def _report_failure(name: str, message: str, hint: str | None, code: int = FAILED) -> int:
    print(f"{name.strip()}: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    return code
