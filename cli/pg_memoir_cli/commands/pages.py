"""Memory pages as Markdown files: pull them, edit them, push them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, TextIO

import typer
from pg_memoir import Memoir, MemoirError
from pg_memoir.types import MarkdownPage, PageEdit, PagePush

from ..app import ATTENTION, FAILED, OK, USAGE, AsJson, Dsn, Stop, app, connected, find_embedder
from ..page_files import PageFile, choose_path, find_pages, read_text, write_page
from ..show import as_json, printable

pages = typer.Typer(no_args_is_help=True, help="Pages that memory writes, as Markdown files to read and edit.")
app.add_typer(pages, name="pages", rich_help_panel="Changing")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what that would change, and change nothing.")]
DONE = {"correct": "corrected", "forget": "forgotten", "remember": "remembered"}


@pages.command()
def pull(
    places: Annotated[
        list[str],
        typer.Argument(metavar="[USER] DIR", help="Whose page, and the folder. Without USER all pages there."),
    ],
    project: Annotated[str | None, typer.Option(help="The page of a project.")] = None,
    topic: Annotated[str | None, typer.Option(help="The page of a topic: words, a tag or a category.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Sentences at most (500).")] = None,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Write a page of what is known about a user into a folder, or bring the pages there up to date.

    `pg-memoir pages pull alice notes`, `pg-memoir pages pull alice notes --topic bicycles`, `pg-memoir pages pull
    notes`

    What was edited in a file and not pushed yet stays in it. Ends with 3 where memory changed under an edit: your words
    are kept, and standard error names the sentence.
    """
    if len(places) > 2:
        raise Stop(f"{len(places)} arguments were given: {' '.join(places)}", "USER DIR, or DIR alone", USAGE)
    user, folder = places[0] if len(places) == 2 else None, Path(places[-1])
    if user is None and (project or topic):
        raise Stop("--project and --topic need a user", f"pg-memoir pages pull USER {folder}", USAGE)
    if user is not None:
        folder.mkdir(parents=True, exist_ok=True)
    present = find_pages(folder)
    with connected(dsn) as memoir:
        memoir.embed = find_embedder(dsn)
        if user is not None:
            named = (user, project, topic)
            path = choose_path(folder, named, present)
            wanted = [(path, named, limit, next((file.text for file in present if file.path == path), None))]
        else:
            wanted = [(file.path, file.named, limit or file.limit, file.text) for file in present]
        if not wanted:
            raise Stop(f"{folder} has no pages", f"pg-memoir pages pull USER {folder}", FAILED)
        conflicts = 0
        for path, (owner, of_project, of_topic), most, edited in wanted:
            made = memoir.memory_page(owner, project=of_project, topic=of_topic, limit=most, edited=edited)
            if made.markdown != edited:
                write_page(path, made.markdown)
            conflicts += len(made.conflicts)
            _tell_pulled(path, made, json)
    return ATTENTION if conflicts else OK


def _tell_pulled(path: Path, made: MarkdownPage, json: bool) -> None:
    if json:
        told = {"file": str(path), "sentences": len(made.sentences), "left_out": made.left_out}
        return as_json(told | {"conflicts": [edit.to_dict() for edit in made.conflicts]}, lines=True)
    count = len(made.sentences)
    left_out = f", {made.left_out} left out" if made.left_out else ""
    print(f"{path}: {count} sentence{'' if count == 1 else 's'}{left_out}")
    for edit in made.conflicts:
        _tell(edit, sys.stderr)


@pages.command()
def push(
    place: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with the pages, or one page.")],
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    lift: Annotated[
        bool, typer.Option("--lift", help="Let back sentences that were forgotten or corrected before.")
    ] = False,
    dsn: Dsn = "",
    json: AsJson = False,
) -> int:
    """Carry out what was edited on pages: first shows it, then asks.

    A changed sentence is corrected, a deleted one forgotten, a new line remembered, with the word of a person.
    `pg-memoir pages push notes --dry-run` only shows.

    A sentence that memory changed meanwhile is a conflict: it stays as it is in both places, and the exit code is 3.
    `pg-memoir pages pull DIR` brings the change in beside your edits. Without a terminal and --yes it only shows.
    """
    broken = 0
    with connected(dsn) as memoir:
        files = find_pages(place)
        if not files:
            raise Stop(f"{place} has no pages", f"pg-memoir pages pull USER {place}", FAILED)
        planned: list[tuple[PageFile, PagePush]] = []
        for file in files:
            try:
                planned.append((file, memoir.push_page(file.named[0], file.text, preview=True)))
            except MemoirError as error:
                broken += 1
                print(
                    f"{file.path}: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr
                )
        waiting = sum(push.count("planned") for _, push in planned)
        if not (waiting and yes) or dry_run:
            _tell_pushed(planned, json)
        if waiting and not dry_run:
            if not yes and not (sys.stdin.isatty() and typer.confirm("Do this?", err=True)):
                print("nothing is pushed" + ("" if sys.stdin.isatty() else "; --yes does it"), file=sys.stderr)
                return FAILED
            planned = [(file, _push(memoir, file, push, lift)) for file, push in planned]
            _tell_pushed(planned, json)
    left = broken + sum(push.count("conflict", "refused") for _, push in planned)
    return ATTENTION if left else OK


def _push(memoir: Memoir, file: PageFile, preview: PagePush, lift: bool) -> PagePush:
    """Pushes a page. Where all of it was done the file becomes the page as it is then."""
    if not preview.edits:
        return preview
    done = memoir.push_page(preview.user, file.text, lift=lift)
    if not done.count("conflict", "refused") and read_text(file.path) == file.text:
        user, project, topic = file.named
        made = memoir.memory_page(user, project=project, topic=topic, limit=file.limit, edited=file.text)
        write_page(file.path, made.markdown)
    return done


def _tell_pushed(done: list[tuple[PageFile, PagePush]], json: bool) -> None:
    for file, push in done:
        if json:
            as_json({"file": str(file.path), **push.to_dict()}, lines=True)
            continue
        counts = Counter(
            DONE[edit.action] if edit.outcome in ("planned", "done") else edit.outcome for edit in push.edits
        )
        counted = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing was edited"
        would = " (not done yet)" if push.count("planned") else ""
        print(f"{file.path}: {counted}{would}")
        for edit in push.edits:
            _tell(edit, sys.stderr if edit.outcome in ("conflict", "refused") else sys.stdout)


def _tell(edit: PageEdit, out: TextIO) -> None:
    """Prints an edit: what memory has, what the page has, and why it is not done."""
    name = edit.action if edit.outcome in ("planned", "done") else edit.outcome
    old, new = (printable(" / ".join((text or "").split("\n"))) for text in (edit.old, edit.new))
    if edit.outcome in ("conflict", "refused"):
        print(f"  {name}: {edit.reason}", file=out)
        print(f"    the page: {new or '(deleted)'}", file=out)
        if old:
            print(f"    memory:   {old}", file=out)
    elif edit.outcome != "unchanged":
        print(f"  {name}: {old}{' -> ' if old and new else ''}{new}", file=out)
