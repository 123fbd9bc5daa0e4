"""Who looks: a listed user with his own key, who sees what is his, or the operator, who has the inspector's token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ..access import find_owner
from ..config import Config

COOKIE = "pg_memoir_inspect"
HOURS = 8
_PROCESS = secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Viewer:
    """`user`: the only one whose pages they see; None for the operator. `form`: what every form must bring along."""

    user: str | None
    form: str


def is_near(request: Request) -> bool:
    """Does the request come from this machine, and mean it? A page elsewhere may have its name point here."""
    try:
        from_here = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
        name = request.url.hostname or ""
        return from_here and (name == "localhost" or ipaddress.ip_address(name).is_loopback)
    except ValueError:
        return False


def admit(config: Config, token: str) -> tuple[bool, str | None]:
    """Whether the token lets in, and as whom."""
    operator = config.inspect_token
    if operator and hmac.compare_digest(token.encode(), operator.encode()):
        return True, None
    user = find_owner(config, token)
    return user is not None, user.name if user else None


def let_in(config: Config, response: Response, user: str | None) -> None:
    """Sets the cookie: who it is and until when, signed; nothing is kept here, so any process knows it."""
    said = base64.urlsafe_b64encode(f"{int(time.time()) + HOURS * 3600}|{user or ''}".encode()).decode()
    value = f"{said}.{_sign(config, said)}"
    response.set_cookie(COOKIE, value, max_age=HOURS * 3600, path="/inspect", httponly=True, samesite="strict")


def find_viewer(config: Config, request: Request) -> Viewer | None:
    """Who looks; None where nobody is logged in."""
    value = request.cookies.get(COOKIE, "")
    said, _, signature = value.partition(".")
    if not signature or not hmac.compare_digest(signature.encode(), _sign(config, said).encode()):
        return None
    until, _, user = base64.urlsafe_b64decode(said).decode().partition("|")
    return Viewer(user or None, _sign(config, f"form {value}")) if int(until) > time.time() else None


def is_meant(request: Request, viewer: Viewer, form: dict[str, str]) -> bool:
    """Was this form filled in on our own page? (The cookie is SameSite, too.)"""
    site = request.headers.get("sec-fetch-site", "same-origin")
    return site == "same-origin" and hmac.compare_digest(form.get("form", "").encode(), viewer.form.encode())


def _sign(config: Config, text: str) -> str:
    key = hashlib.sha256((config.inspect_token or _PROCESS).encode()).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
