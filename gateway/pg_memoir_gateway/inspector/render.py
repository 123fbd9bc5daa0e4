"""Makes pages of the templates."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .login import Viewer

HERE = Path(__file__).parent


def render(
    request: Request, template: str, title: str, viewer: Viewer | None = None, status: int = 200, **values: Any
) -> Response:
    """Returns a page."""
    given = {
        "title": title,
        "viewer": viewer,
        "path": request.url.path,
        "query": request.query_params if viewer else {},
    }
    return HTMLResponse(TEMPLATES.get_template(template).render(given | values), status)


def link(path: str, **values: Any) -> str:
    """Returns an address within the inspector."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"/inspect{path}" + (f"?{urlencode(given)}" if given else "")


def format_moment(at: Any) -> str:
    """Returns a time as people read it, in UTC."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{at:%-d %b %Y, %H:%M}" if at else "–"


LOADER = jinja2.FileSystemLoader(HERE / "templates")
TEMPLATES = jinja2.Environment(
    loader=LOADER, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
TEMPLATES.globals |= {"link": link}
TEMPLATES.filters |= {
    "moment": format_moment,
    "number": lambda value: "–" if value is None else f"{value:,.0f}".replace(",", " "),
    "share": lambda value: "–" if value is None else f"{value:.2f}",
}
