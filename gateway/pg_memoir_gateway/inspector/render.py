"""Makes pages of the templates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .login import Viewer

HERE = Path(__file__).parent

STATES = {
    "active": "current",
    "superseded": "replaced",
    "invalidated": "taken back",
    "expired": "expired",
    "forgotten": "forgotten",
    "erased": "erased",
}
PROVENANCE = {
    "user_stated": "said by the user",
    "correction": "a correction",
    "instruction": "an instruction",
    "preference": "a preference",
    "fact": "a fact",
    "tool_output": "output of a tool",
    "system_inferred": "inferred",
}
JUDGES = {
    "slot": "one matter has two values",
    "value": "the values differ",
    "polarity": "one denies the other",
    "rules": "decided by rules",
    "person": "decided by a person",
}
DONE = {
    "forget": "Forgotten. It can be brought back from its page.",
    "correct": "Corrected.",
    "pin": "Pinned.",
    "unpin": "Unpinned.",
    "restore": "Brought back.",
    "settle": "Settled.",
    "add": "Added.",
    "undo": "Undone.",
    "erase": "Erased.",
    "page": "Done. This is the page as it is now.",
}
STEPS = ((31_557_600, "year"), (2_629_800, "month"), (86_400, "day"), (3_600, "hour"), (60, "minute"))
"""Seconds of the units in which a time ago is told."""

OVERRIDES = {code: f"⟦U+{code:04X}⟧" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that turn the direction of what follows. Shown by name, because they make a text look like another."""


class Exact(Markup):
    """A text for a field of a form: escaped, and else as it is."""


def show_overrides(value: Any) -> Any:
    """Returns a value as templates print it."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.translate(OVERRIDES)
    return value


def render(
    request: Request | None, template: str, title: str, viewer: Viewer | None = None, status: int = 200, **values: Any
) -> Response:
    """Returns a page."""
    query = request.query_params if request and viewer else {}
    given = {
        "title": title,
        "viewer": viewer,
        "path": request.url.path if request else "",
        "query": query,
        "done": DONE.get(query.get("done", "")),
    }
    return HTMLResponse(TEMPLATES.get_template(template).render(given | values), status)


def link(path: str, **values: Any) -> str:
    """Returns an address within the inspector."""
    given = {name.rstrip("_"): value for name, value in values.items() if value not in (None, "")}
    return f"/inspect{path}" + (f"?{urlencode(given)}" if given else "")


def _read_time(at: Any) -> datetime | None:
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def format_moment(at: Any) -> str:
    """Returns a time as people read it, in UTC."""
    at = _read_time(at)
    return f"{at.astimezone(UTC):%-d %b %Y, %H:%M}" if at else "–"


def format_ago(at: Any) -> str:
    """Returns how long ago a time was."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    for size, unit in STEPS:
        if (count := int(abs(seconds) // size)) > 0:
            told = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"{told} ago" if seconds > 0 else f"in {told}"
    return "just now"


def format_when(at: Any) -> Markup:
    """Returns a time as people read it, and how long ago it was."""
    at = _read_time(at)
    if not at:
        return Markup("–")
    told = Markup('<time datetime="{}">{} <span class="ago">{}</span></time>')
    return told.format(at.isoformat(), format_moment(at), format_ago(at))


def format_money(microcents: Any) -> str:
    """Returns an amount in the currency's unit, small ones to four places."""
    amount = (microcents or 0) / 100_000_000
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


LOADER = jinja2.FileSystemLoader(HERE / "templates")
TEMPLATES = jinja2.Environment(
    loader=LOADER,
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=show_overrides,
)
TEMPLATES.globals |= {"link": link, "STATES": STATES, "PROVENANCE": PROVENANCE, "JUDGES": JUDGES}
TEMPLATES.filters |= {
    "moment": format_moment,
    "when": format_when,
    "money": format_money,
    "heads": lambda used: [f"#{label}" for _, label in used],
    "combine": lambda row, **more: row | more,
    "exact": lambda value: Exact(escape(value)),
    "label": lambda value: value.replace("_", " "),
    "number": lambda value: "–" if value is None else f"{value:,.0f}".replace(",", " "),
    "share": lambda value: "–" if value is None else f"{value:.2f}",
}
