"""What changes something. Each action asks first, on a page of its own, and is done by that page's form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from pg_memoir.errors import NotAuthorizedError
from pg_memoir.types import SessionRow
from starlette.responses import RedirectResponse, Response

from .look import Look, Refused, read_uuid
from .render import link
from .words import read_changes
from .written import ask_page, change_page

T = TypeVar("T")
Form = dict[str, str]

REASON = "by a person, in the inspector"
TYPES = ("fact", "preference", "instruction", "decision", "event", "plan")
"""Types of a memory that a person adds."""
IMPORTANCES = ("critical", "important", "normal", "minor")


@dataclass(frozen=True)
class Action:
    """`ask` shows the page, `apply` does it and returns where to go then."""

    ask: Callable[[Look], Awaitable[Response]]
    apply: Callable[[Look, Form], Awaitable[Response]]


async def act(look: Look) -> Response:
    """Asks, and on the answer does it."""
    action = ACTIONS.get(look.request.path_params["what"])
    if action is None:
        raise Refused(404, "There is nothing to change here")
    if look.request.method == "POST":
        form = await look.read_form()
        return await action.apply(look, form)
    return await action.ask(look)


async def as_person(call: Callable[..., Awaitable[T]]) -> T:
    """Calls with the word of a person. A login that may not act as one calls with its own."""
    try:
        return await call(actor="person")
    except NotAuthorizedError:
        return await call()


async def find_memory(look: Look) -> dict[str, Any]:
    """Returns the memory that the address names. Raises Refused."""
    found = await look.memoir.memory_get(look.user, [look.read_id()])
    if not found or found[0]["kind"] != "memory":
        raise Refused(404, "There is nothing to change here")
    return found[0]


def ask_about_memory(what: str, title: str) -> Callable[[Look], Awaitable[Response]]:
    """Returns the page that asks about one memory."""

    async def ask(look: Look) -> Response:
        item = await find_memory(look)
        sessions: list[SessionRow] = []
        other = None
        if what == "pin":
            sessions = await look.memoir.list_sessions(look.user, status="active", limit=50)
        if what == "settle":
            found = await look.memoir.memory_get(look.user, [look.read_id("other")])
            if not found:
                raise Refused(404, "Nothing has this id", look.read_argument("other"))
            other = found[0]
        return look.show("change.html", title, item=item, what=what, sessions=sessions, other=other)

    return ask


def go_to_memory(look: Look, memory: Any, done: str) -> Response:
    """Returns the way to a memory."""
    return look.go("/memory", id=memory, done=done)


async def forget(look: Look, form: Form) -> Response:
    """Forgets a memory."""
    item = await find_memory(look)
    await look.memoir.forget(look.user, UUID(item["id"]), reason=REASON)
    return go_to_memory(look, item["id"], "forget")


async def correct(look: Look, form: Form) -> Response:
    """Replaces a memory by what the form says."""
    item, content = await find_memory(look), form.get("content", "").strip()
    if not content:
        raise Refused(400, "Nothing was written", "A correction says what is right.")
    memory, user = UUID(item["id"]), look.user
    done = await as_person(lambda **by: look.memoir.correct(user, memory, content, reason=REASON, **by))
    return go_to_memory(look, done["memory_id"] or item["id"], "correct")


async def pin(look: Look, form: Form) -> Response:
    """Pins a memory in a session, or ends that."""
    item, session = await find_memory(look), form.get("session", "")
    if form.get("end"):
        await look.memoir.unpin(look.user, session, UUID(item["id"]))
        return go_to_memory(look, item["id"], "unpin")
    await look.memoir.pin(look.user, session, UUID(item["id"]), reason=REASON)
    return go_to_memory(look, item["id"], "pin")


async def restore(look: Look, form: Form) -> Response:
    """Brings a rejected memory back."""
    item = await find_memory(look)
    done = await look.memoir.lift_tombstone(look.user, UUID(item["id"]), reason=REASON)
    if not done["lifted"] and not done["restored"]:
        raise Refused(400, "It can't be brought back", "Nothing bars it. Another memory may have its place.")
    return go_to_memory(look, item["id"], "restore")


async def settle(look: Look, form: Form) -> Response:
    """Has a memory prevail over another that contradicts it."""
    item, other = await find_memory(look), look.read_id("other")
    memory = UUID(item["id"])
    try:
        await look.memoir.validate(look.user, memory, reason=REASON)
    except NotAuthorizedError:  # the login does not act as a person
        await look.memoir.relate(look.user, memory, "supersedes", other)
    return look.go("/doubts", done="settle")


async def ask_add(look: Look) -> Response:
    """Asks for a new memory."""
    return show_add(look)


def show_add(look: Look, form: Form | None = None, problem: str = "") -> Response:
    """Returns the page on which a memory is written."""
    given = {"types": TYPES, "importances": IMPORTANCES, "form": form or {}, "problem": problem}
    return look.show("add.html", "Add a memory", **given)


async def add(look: Look, form: Form) -> Response:
    """Stores a memory, and says why where it is not stored."""
    content, user = form.get("content", "").strip(), look.user
    if not content:
        return show_add(look, form, "Write what is to be remembered.")
    asked: dict[str, Any] = {name: form.get(name, "").strip() or None for name in ("type", "project", "importance")}
    done = await as_person(lambda **by: look.memoir.remember(user, content, **asked, **by))
    if done["outcome"] == "stored":
        return go_to_memory(look, done["memory_id"], "add")
    problems = {
        "duplicate": "This is known already.",
        "outdated": "Something newer is known about this.",
        "refused_tombstone": "This was rejected before. Bring it back from its page, under the state 'forgotten'.",
    }
    return show_add(look, form, problems.get(done["outcome"], done["outcome"]))


async def ask_forget_many(look: Look) -> Response:
    """Asks whether the selected memories are to be forgotten."""
    found = await look.memoir.memory_get(look.user, look.read_ids())
    items = [item for item in found if item["kind"] == "memory" and item["state"] != "forgotten"]
    return look.show("forget_many.html", "Forget these?", items=items)


async def forget_many(look: Look, form: Form) -> Response:
    """Forgets the memories that the page listed."""
    ids = [read_uuid(text) for text in form.get("ids", "").split()]
    if not 1 <= len(ids) <= 100:
        raise Refused(400, "Select 1 to 100 memories", f"{len(ids)} were selected.")
    for memory in ids:
        await look.memoir.forget(look.user, memory, reason=REASON)
    return look.go("/memories", done="forget")


async def ask_forget_about(look: Look) -> Response:
    """Shows what words name, before it is forgotten."""
    words = look.get("q") or ""
    found = await look.memoir.forget_about(look.user, words, preview=True) if words else None
    return look.show("forget_about.html", "Forget by words", words=words, found=found)


async def forget_about(look: Look, form: Form) -> Response:
    """Forgets what words name."""
    words = form.get("q", "").strip()
    done = await look.memoir.forget_about(look.user, words) if words else {"outcome": "nothing"}
    if done["outcome"] != "forgotten":
        raise Refused(400, "Nothing was forgotten", f"“{words}” names nothing that is clear enough.")
    return look.go("/changes", done="forget")


async def ask_undo(look: Look) -> Response:
    """Shows a change with its words, before it is undone."""
    wanted = look.read_id()
    changes = [one for one in await look.memoir.list_changes(look.user) if one.change_id == wanted]
    if not changes:
        raise Refused(404, "No such change, or it is undone already", str(wanted))
    return look.show("undo.html", "Undo this?", shown=(await read_changes(look.memoir, look.user, changes))[0])


async def undo(look: Look, form: Form) -> Response:
    """Takes a change back."""
    await look.memoir.undo_change(look.user, look.read_id())
    return look.go("/changes", done="undo")


async def ask_erase(look: Look) -> Response:
    """Asks for the name of what is to be erased: a session, or the user."""
    session = look.get("session")
    counted = await (look.memoir.session_info(look.user, session) if session else look.memoir.memory_stats(look.user))
    return look.show("erase.html", "Erase", session=session, counted=counted)


async def erase(look: Look, form: Form) -> Response:
    """Erases a session, or the user."""
    user, session = look.user, look.get("session")
    name = session or user
    if form.get("name", "") != name:
        raise Refused(
            400, "Nothing was erased", f"To erase {name}, type that name. You typed {form.get('name', '')!r}."
        )
    if session:
        await look.memoir.erase_session(user, session)
        return look.go("/sessions", done="erase")
    await look.memoir.erase_user(user)
    if look.viewer.user is None:
        return RedirectResponse(link("", done="erase"), 303)
    return look.go("/user", done="erase")


ACTIONS = {
    "forget": Action(ask_about_memory("forget", "Forget this?"), forget),
    "correct": Action(ask_about_memory("correct", "Correct this"), correct),
    "pin": Action(ask_about_memory("pin", "Pin this?"), pin),
    "restore": Action(ask_about_memory("restore", "Bring this back?"), restore),
    "settle": Action(ask_about_memory("settle", "Is this right?"), settle),
    "add": Action(ask_add, add),
    "forget-many": Action(ask_forget_many, forget_many),
    "forget-about": Action(ask_forget_about, forget_about),
    "undo": Action(ask_undo, undo),
    "erase": Action(ask_erase, erase),
    "page": Action(ask_page, change_page),
}
