"""Looking: namespaces, list, search, explain, graph, tail, status."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, cast

import typer
from pg_memoir import Memoir
from pg_memoir.types import State
from rich.text import Text
from rich.tree import Tree

from ..app import ATTENTION, OK, AsJson, Dsn, User, app, connected, find_embedder
from ..show import Column, as_json, cell, console, facts, printable, table

Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")]
Project = Annotated[str | None, typer.Option(help="Only of this project (and global ones).")]
_LOOKING = "Looking"


class Kind(StrEnum):
    """What can be found."""

    memory = "memory"
    turn = "turn"
    summary = "summary"


@app.command(rich_help_panel=_LOOKING)
def namespaces(dsn: Dsn = "", json: AsJson = False) -> None:
    """List namespaces: users, sessions, turns, memories of each.

    A namespace belongs to a login (bind_login); the same user name in two of them is two users. An admin's login.
    """
    with connected(dsn) as memoir:
        columns: list[Column] = ["namespace", "users", "sessions", "turns", "memories", "last_turn_at"]
        table(memoir.list_namespaces(), columns, json=json, nothing="nobody has said anything yet")


@app.command(rich_help_panel=_LOOKING)
def users(
    after: Annotated[str | None, typer.Option(help="Begin behind this name: the last of the page before.")] = None,
    limit: Limit = 100,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """List the users that the login may read, by name."""
    with connected(dsn) as memoir:
        found = memoir.list_users(after_user=after, limit=limit)
        columns: list[Column] = ["user_name", "sessions", "memories", "last_recorded_at", "created_at"]
        table(found, columns, json=json, nothing="nobody has said anything yet")


_MEMORY: list[Column] = ["memory_id", "said_at", "type", "importance", "state", "content"]


class Listed(StrEnum):
    """Lists there are of a user."""

    memories = "memories"
    sessions = "sessions"
    speakers = "speakers"
    changes = "changes"
    tombstones = "tombstones"


@app.command("list", rich_help_panel=_LOOKING)
def list_(
    user: User,
    what: Annotated[Listed, typer.Argument(help="What to list.")] = Listed.memories,
    state: Annotated[
        list[str] | None, typer.Option(help="Memories in this state (default: active; all for every one).")
    ] = None,
    type: Annotated[list[str] | None, typer.Option(help="Memories of this type, such as preference.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Memories with this tag.")] = None,
    session: Annotated[str | None, typer.Option(help="What was said in this session.")] = None,
    project: Project = None,
    limit: Limit = 50,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """List what is known about a user: memories, sessions (threads), speakers, changes, tombstones.

    `pg-memoir list alice`, `pg-memoir list alice sessions`, `pg-memoir list alice --type preference --json`

    changes: what later turns changed of earlier ones, or asked to forget. tombstones: what may not come back.
    """
    with connected(dsn) as memoir:
        if what is Listed.memories:
            states = cast("list[State] | None", [] if state == ["all"] else state)  # the database checks them
            found = memoir.list_memories(
                user, states=states, types=type, tags=tag, session=session, project=project, limit=limit
            )
            table(found, _MEMORY, json=json, nothing=f"nothing is remembered of {user}")
            return
        rows: list[Any]
        columns: list[Column]
        if what is Listed.sessions:
            rows = memoir.list_sessions(user, project=project, limit=limit)
            columns = ["session", "status", "turns", "tokens", "model", "project", "last_recorded_at", "summary"]
        elif what is Listed.speakers:
            rows = memoir.list_speakers(user, session=session)
            columns = ["speaker", "role", "sessions", "turns", "first_said_at", "last_said_at"]
        elif what is Listed.changes:
            rows = memoir.list_changes(user)[:limit]
            columns = ["change_id", "recorded_at", "kind", "by_session", "by_turn"]
        else:
            rows = memoir.list_tombstones(user)[:limit]
            columns = ["memory_id", "recorded_at", "kinds", "reason", "content"]
        table(rows, columns, json=json)


@app.command(rich_help_panel=_LOOKING)
def search(
    user: User,
    query: Annotated[str, typer.Argument(help="A question, or words.")],
    kind: Annotated[list[Kind] | None, typer.Option(help="Only these.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only what has this tag.")] = None,
    session: Annotated[str | None, typer.Option(help="Only what was said in this session.")] = None,
    project: Project = None,
    limit: Limit = 10,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """Search memories, turns and summaries of a user, best first.

    `pg-memoir search alice "Why was my invoice wrong?" --kind turn`

    matched by: words, vector, neighbour (stands beside a match), filter (has the tag). The score is from 0 to 1.
    """
    with connected(dsn) as memoir:
        memoir.embed = find_embedder(dsn)
        hits = memoir.recall(
            user, query, session=session, limit=limit, tags=tag, project=project, kinds=[k.value for k in kind or Kind]
        )
        columns: list[Column] = [
            "score", "kind", "id", ("where", lambda row: _place(row["session"], row["turn_index"])), "said_at",
            ("matched by", lambda row: row["matched_by"]), "content",
        ]  # fmt: skip
        table(hits, columns, json=json, nothing="nothing was found")


def _place(session: str | None, turn: int | None) -> str:
    return "" if session is None else session if turn is None else f"{session}:{turn}"


@app.command(rich_help_panel=_LOOKING)
def explain(
    user: User,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session's name; a new one will do.")],
    query: Annotated[str | None, typer.Argument(help="What the user would say next.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Tokens of the whole list.")] = None,
    left_out: Annotated[bool, typer.Option("--left-out", help="Show what was left out, too.")] = False,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """Explain a compile: what would be sent to the model for a question, and why.

    Nothing is stored. Every item considered has its place in the list or the reason why it was left out; --json has
    the score's parts.

    `pg-memoir explain alice support-42 "Why was my March invoice wrong?" --left-out`
    """
    with connected(dsn) as memoir:
        memoir.embed = find_embedder(dsn)
        rows = memoir.explain(user, session, query, budget=budget)
        if json:
            return as_json(rows)
        included = [row for row in rows if row.included]
        shown = rows if left_out else included
        columns: list[Column] = [
            ("#", lambda row: row["position"]), "score", "tokens", "fidelity", "kind",
            ("where", lambda row: _place(row["session"], row["turn_index"])),
            ("why not", lambda row: row["reason"]), "content",
        ]  # fmt: skip
        table(shown, columns if left_out else [c for c in columns if c[0] != "why not"], nothing="nothing is recalled")
        tokens = sum(row.tokens or 0 for row in included)
        print(f"{len(included)} of {len(rows)} items, {tokens} tokens", file=sys.stderr)


@app.command(rich_help_panel=_LOOKING)
def graph(
    user: User,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="A memory's id, as list and search show it.")],
    hops: Annotated[int, typer.Option(min=1, max=5, help="How far to go.")] = 2,
    limit: Limit = 200,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """Show what a memory is tied to: what it supersedes, contradicts, elaborates, was caused by."""
    with connected(dsn) as memoir:
        edges = [asdict(edge) for edge in memoir.memory_graph(user, memory, hops=hops, limit=limit)]
        if json:
            return as_json(edges)
        [root] = memoir.memory_get(user, [memory])
        console().print(_tree(root, edges))


def _tree(root: dict[str, Any], edges: list[dict[str, Any]]) -> Tree:
    """The edges as a tree, each once, from the memory outwards."""
    tree = Tree(Text(printable(str(root.get("content") or "(forgotten)"))))
    nodes = {str(root["id"]): tree}
    for edge in edges:
        ends = [("source", "target", "→"), ("target", "source", "←")]
        for near, far, arrow in ends:
            node, other = nodes.get(str(edge[f"{near}_id"])), str(edge[f"{far}_id"])
            if node is not None:
                line = f"{arrow} {edge['relation']} {cell(edge[f'{far}_line']) or '(forgotten)'}  [{other}]"
                branch = node.add(Text(line))
                nodes.setdefault(other, branch)
                break
    return tree


@app.command(rich_help_panel=_LOOKING)
def tail(
    user: User,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many turns to begin with.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new turns as they come.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between looks, with -f.")] = 1.0,
    dsn: Dsn = "",
    json: AsJson = False,
) -> None:
    """Show the newest turns of a user, and with -f those to come, until Ctrl-C.

    `pg-memoir tail alice -f`; with --json one line of JSON per turn.
    """
    with connected(dsn) as memoir:
        seen: dict[str, int] = {}
        for turn in _newest(memoir, user, session, lines, seen):
            _print_turn(turn, json)
        while follow:
            time.sleep(interval)
            for turn in _grown(memoir, user, session, seen):
                _print_turn(turn, json)


def _sessions(memoir: Memoir, user: str, only: str | None) -> Iterator[Any]:
    """All sessions of a user, the newest first, page by page."""
    after = None
    while True:
        page = memoir.list_sessions(user, after_session=after, limit=1000)
        yield from (row for row in page if only in (None, row.session))
        if len(page) < 1000:
            return
        after = page[-1].session


def _newest(memoir: Memoir, user: str, only: str | None, lines: int, seen: dict[str, int]) -> list[dict[str, Any]]:
    """The last turns of a user in the order they were said; notes in `seen` how far each session has got."""
    sessions = sorted(
        _sessions(memoir, user, only),
        key=lambda row: row.last_recorded_at.timestamp() if row.last_recorded_at else 0.0,
        reverse=True,
    )
    seen |= {row.session: row.turns or 0 for row in sessions}
    turns: list[dict[str, Any]] = []
    for row in sessions[:lines]:
        end = row.turns or 0
        turns += _turns(memoir, user, row.session, max(0, end - lines), end - 1)
    turns.sort(key=lambda turn: turn.get("created_at") or "")
    return turns[-lines:] if lines else []


def _turns(memoir: Memoir, user: str, session: str, first: int, last: int) -> list[dict[str, Any]]:
    if last < first:
        return []
    return [{"session": session, **turn} for turn in memoir.history(user, session, from_turn=first, to_turn=last)]


def _grown(memoir: Memoir, user: str, only: str | None, seen: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Turns that came since the last look."""
    for row in list(_sessions(memoir, user, only)):
        before, end = seen.get(row.session, 0), row.turns or 0
        if end > before:
            seen[row.session] = end
            yield from _turns(memoir, user, row.session, before, end - 1)


def _print_turn(turn: dict[str, Any], json: bool) -> None:
    if json:
        as_json(turn, lines=True)
    else:
        calls = ", ".join(call["function"]["name"] for call in turn.get("tool_calls") or [])
        content = turn.get("content")
        if isinstance(content, list):
            content = " ".join(part.get("text", f"[{part.get('type')}]") for part in content)
        said = content or (f"calls {calls}" if calls else "")
        who = turn.get("name") or turn["role"]
        when = str(turn.get("created_at", ""))[:16].replace("T", " ")
        head = f"{when} {turn['session']}:{turn['turn_index']} {who}"
        console().print(Text(printable(head.strip()), style="bold"), Text(printable(str(said))))
    sys.stdout.flush()


@app.command(rich_help_panel=_LOOKING)
def status(dsn: Dsn = "", json: AsJson = False) -> int:
    """Is all well? Problems with their remedies, jobs, and what waits for a vector.

    Ends with 0 where all is well and with 3 where it is not, for scripts and probes. An admin's login.
    """
    with connected(dsn) as memoir:
        problems = memoir.health_problems()
        jobs = memoir.list_jobs()
        models = memoir.embedding_progress()
    colour = "red" if any(p["severity"] == "red" for p in problems) else "yellow" if problems else "green"
    if json:
        as_json({"status": colour, "problems": problems, "jobs": jobs, "embedding": models})
        return ATTENTION if problems else OK
    facts({"status": colour, "problems": len(problems)})
    if problems:
        print()
        table(problems, ["severity", "problem", ("what to do", lambda row: row["remedy"])])
    print()
    table(
        jobs,
        [
            "job", "schedule", ("last run", lambda row: row["last_started"]),
            ("outcome", lambda row: row["last_outcome"]),
        ],
    )  # fmt: skip
    print()
    table(models, ["model", "status", "users", "users_waiting", "dead_letters"])
    return ATTENTION if problems else OK
