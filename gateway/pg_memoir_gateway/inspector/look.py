"""One request for a page: who looks, at whom, and what is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from pg_memoir.types import IndexHit
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..gateway import Gateway
from . import login
from .login import Viewer
from .render import link, render

PAGE = 50  # rows of a list
NEAR = 0.4  # share of the best hit's score that others must have
MOST_FORM = 1_000_000  # bytes of a form, where a letter may take nine


class Refused(Exception):
    """Shown as a page: status, what it is, and what to do."""

    def __init__(self, status: int, title: str, text: str = "") -> None:
        super().__init__(title)
        self.status, self.title, self.text = status, title, text


class Look:
    """What a page gets. Its calls of the database end after some time, as those over REST."""

    def __init__(self, gateway: Gateway, request: Request, viewer: Viewer) -> None:
        self.gateway, self.request, self.viewer = gateway, request, viewer
        self.memoir = gateway.rest_memoir
        self.query = request.query_params

    @property
    def user(self) -> str:
        """The user whose pages these are. Raises Refused where the viewer may not see them."""
        user = self.query.get("user") or self.viewer.user or self.gateway.config.user
        if self.viewer.user not in (None, user):
            raise Refused(403, "Not yours to see", f"You are logged in as {self.viewer.user}.")
        return user

    def get(self, name: str) -> str | None:
        """Returns an argument of the address, None where it is empty. Spaces stay, because they are part of names."""
        value = self.query.get(name, "")
        return value if value.strip() else None

    def read_argument(self, name: str) -> str:
        """Returns an argument that must be there."""
        if not (value := self.get(name)):
            raise Refused(400, f"The address lacks {name}")
        return value

    def read_id(self, name: str = "id") -> UUID:
        """Returns an argument that is an id."""
        return read_uuid(self.read_argument(name))

    def read_ids(self) -> list[UUID]:
        """Returns all arguments `id`, 100 at most."""
        ids = [read_uuid(text) for text in self.query.getlist("id")]
        if not 1 <= len(ids) <= 100:
            raise Refused(400, "Select 1 to 100 memories", f"{len(ids)} were selected.")
        return ids

    def read_day(self, name: str) -> datetime | None:
        """Returns the beginning of a day in UTC, None where none is given."""
        try:
            given = self.get(name)
            day = date.fromisoformat(given) if given else None
        except ValueError:
            raise Refused(400, f"{name} is not a date such as 2026-01-31", self.query[name]) from None
        return datetime(day.year, day.month, day.day, tzinfo=UTC) if day else None

    def read_days(self) -> dict[str, datetime]:
        """Returns the days `from` and `to`, both included, as after and before."""
        first, last = self.read_day("from"), self.read_day("to")
        if last and last.year == 9999:
            raise Refused(400, "to is too late a date", self.query["to"])
        given = {"after": first, "before": last + timedelta(days=1) if last else None}
        return {name: value for name, value in given.items() if value}

    async def read_form(self) -> dict[str, str]:
        """Returns the form. Raises Refused where it is not ours."""
        form = await parse_form(self.request)
        if not login.is_meant(self.request, self.viewer, form):
            text = "That form did not come from this inspector, or is too old. Go back and try again."
            raise Refused(403, "Not done", text)
        return form

    def show(self, template: str, title: str, **values: Any) -> Response:
        """Returns a page about the user."""
        return render(self.request, template, title, self.viewer, user=self.user, **values)

    def go(self, path: str, **values: Any) -> Response:
        """Returns a redirection to a page about the user."""
        return RedirectResponse(link(path, user=self.user, **values), 303)


Page = Callable[[Look], Awaitable[Response]]


def read_uuid(text: str) -> UUID:
    """Returns an id. Raises Refused."""
    try:
        return UUID(text)
    except ValueError:
        raise Refused(400, "That is no id", text) from None


async def parse_form(request: Request) -> dict[str, str]:
    """Returns the fields of a form, the last of a name. Raises Refused where it is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM:
            raise Refused(
                413, "Not done", "That is too long for a form. Use the client or SQL for a text of this size."
            )
    fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: value.replace("\r\n", "\n") for name, value in fields}  # how browsers send the ends of lines


def keep_near(hits: list[IndexHit]) -> list[IndexHit]:
    """Returns the hits of a search without those that are far behind the best. A recall always finds something."""
    return [hit for hit in hits if hit.score >= NEAR * hits[0].score]
