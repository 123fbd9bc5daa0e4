"""The page that memory writes of a user, a project or a topic: read, and edited as its Markdown."""

from __future__ import annotations

import asyncio
from typing import Any

from pg_memoir.errors import InvalidArgumentError
from pg_memoir.extras.pages import find_heading, read
from pg_memoir.types import MarkdownPage, PagePush, PageSentence
from starlette.responses import Response

from .look import Look


async def make_page(look: Look) -> MarkdownPage:
    """Returns the page that the address asks for."""
    return await look.memoir.memory_page(look.user, project=look.get("project"), topic=look.get("topic"))


async def show_page(look: Look) -> Response:
    """Shows the page, each sentence with its sources."""
    stats, page = await asyncio.gather(look.memoir.memory_stats(look.user), make_page(look))
    groups: dict[str, list[PageSentence]] = {}
    for one in page.sentences:
        groups.setdefault(find_heading(one), []).append(one)
    order = [line.lstrip("#").strip() for line in page.markdown.split("\n") if line.startswith("##")]
    found = {heading: groups[heading] for heading in dict.fromkeys(order) if heading in groups}
    return look.show("page.html", "Page", stats=stats, page=page, groups=found)


async def ask_page(look: Look) -> Response:
    """Shows the page's Markdown, to edit it."""
    page = await make_page(look)
    return _show_editor(look, page.project, page.topic, page.markdown)


def _show_editor(
    look: Look,
    project: str | None,
    topic: str | None,
    markdown: str,
    pushed: PagePush | None = None,
    problem: str = "",
) -> Response:
    title = "Do this?" if pushed and pushed.preview else "Edit the page"
    given: dict[str, Any] = {"project": project, "topic": topic, "markdown": markdown, "pushed": pushed}
    return look.show("page_edit.html", title, problem=problem, **given)


async def change_page(look: Look, form: dict[str, str]) -> Response:
    """Shows what the edits of a page mean, and on the second answer carries them out. What memory changed meanwhile
    stands beside the editor again, so no word is lost."""
    markdown, user = form.get("markdown", ""), look.user
    step = form.get("step", "")
    try:
        written = read(markdown)
    except InvalidArgumentError as error:
        return _show_editor(look, None, None, markdown, problem=error.message)
    if step == "edit":
        return _show_editor(look, written.project, written.topic, markdown)
    pushed = await look.memoir.push_page(user, markdown, preview=step != "push")
    if pushed.preview or pushed.count("conflict", "refused"):
        return _show_editor(look, written.project, written.topic, markdown, pushed)
    return look.go("/page", project=written.project, topic=written.topic, done="page")
