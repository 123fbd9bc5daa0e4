"""Experience: learn how something is done, say how it went, list the ways for a task."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from ..app import AsJson, Dsn, User, app, connected
from ..show import Column, as_json, table

_EXPERIENCE = "Experience"
_WAYS: list[Column] = ["memory_id", "verdict", "tried", "succeeded", "failed", "trigger", "way"]
Note = Annotated[str | None, typer.Option(help="Why it went so.")]
Project = Annotated[str | None, typer.Option(help="Of this project and of all.")]


class Kind(StrEnum):
    """Kinds of experience."""

    procedure = "procedure"
    lesson = "lesson"
    skill = "skill"


@app.command(rich_help_panel=_EXPERIENCE)
def learn(
    user: User,
    trigger: Annotated[str, typer.Argument(help="When it applies, in one line.")],
    way: Annotated[str, typer.Argument(help="What to do.")],
    type: Annotated[Kind, typer.Option(help="Steps, what to do or leave, or a text to follow.")] = Kind.procedure,
    worked: Annotated[bool | None, typer.Option("--worked/--failed", help="How it went, if it was tried.")] = None,
    note: Note = None,
    project: Annotated[str | None, typer.Option(help="Where it holds. Without it, everywhere.")] = None,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """Store how something is done.

    `pg-memoir learn alice "deploy the api" "./ops/ship.sh api" --worked`
    """
    with connected(dsn) as memoir:
        done = memoir.learn_experience(user, trigger, way, type=type.value, success=worked, note=note, project=project)
    if json:
        as_json(done)
    else:
        print(f"{done['outcome']}: {done['memory_id'] or done.get('hint')}")


@app.command(rich_help_panel=_EXPERIENCE)
def outcome(
    user: User,
    memory: Annotated[UUID, typer.Argument(help="The id of a procedure, lesson or skill.")],
    worked: Annotated[bool, typer.Option("--worked/--failed", help="How it went.")],
    note: Note = None,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """Say whether a way worked. Ways that fail more than they work are shown as warnings.

    `pg-memoir outcome alice 0198… --failed --note "needs the VPN"`
    """
    with connected(dsn) as memoir:
        done = memoir.report_outcome(user, memory, worked, note=note)
    if json:
        as_json(done)
    else:
        print(
            f"worked {done['succeeded']} of {done['tried']}" + ("" if done["note_kept"] else "; the note looks secret")
        )


@app.command(rich_help_panel=_EXPERIENCE)
def experience(
    user: User,
    task: Annotated[str | None, typer.Argument(help="What is to be done. Without it, all ways.")] = None,
    project: Project = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="How many at most.")] = 10,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """List the ways for a task, best first: those that worked, then those that failed.

    `pg-memoir experience alice "put the api on staging"`
    """
    with connected(dsn) as memoir:
        found = memoir.recall_experience(user, task, project=project, limit=limit)
        table(found, _WAYS, json=json, nothing="no experience with that")
