"""Who asks: by key, by a header of the operator's own front end, or the one user of a gateway that only this machine
reaches. Never by what a request says of itself."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pg_memoir import in_space

from .config import Config, Mode, Service, User

SPACE_HEADER = "x-pg-memoir-space"
T = TypeVar("T", User, Service)


def find_owner(config: Config, key: str) -> User | None:
    """The user who is listed with this key."""
    return _find_listed(config.users, key)


def find_service(config: Config, headers: Mapping[str, str]) -> Service | None:
    """The service whose key a request carries."""
    return next((found for key in read_keys(headers) if (found := _find_listed(config.services, key))), None)


def has_listed_key(config: Config, headers: Mapping[str, str]) -> bool:
    """Does a request carry the key of a user or a service?"""
    return any(find_owner(config, key) for key in read_keys(headers)) or find_service(config, headers) is not None


def _find_listed(listed: Sequence[T], key: str) -> T | None:
    found = hashlib.sha256(key.encode()).hexdigest()
    return next((one for one in listed if key and hmac.compare_digest(one.key_sha256, found)), None)


def read_keys(headers: Mapping[str, str]) -> list[str]:
    """Returns the keys that a request carries, as clients of Anthropic and of OpenAI send them."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return [headers.get("x-api-key", ""), token.strip() if kind.lower() == "bearer" else ""]


def find_user(config: Config, headers: Mapping[str, str]) -> tuple[str, Mode] | None:
    """Whose request this is, and the mode for it; None where that is not known. A listed key comes first, as
    Anthropic's clients send it or as a bearer token; then the header. Header x-pg-memoir-space: in that space."""
    found = _find_person(config, headers)
    space = headers.get(SPACE_HEADER)
    # The database knows who is a member.
    return (in_space(found[0], space), found[1]) if found and space else found


def may_act_for(whose: str, user: str | None) -> bool:
    """Is `user` whose request it is, or their address in a space?"""
    return user is not None and (user == whose or user.startswith(in_space(whose, "")))


def _find_person(config: Config, headers: Mapping[str, str]) -> tuple[str, Mode] | None:
    for key in read_keys(headers):
        if found := find_owner(config, key):
            return found.name, found.mode or config.mode
    if config.user_header and (name := headers.get(config.user_header.lower())):
        return name, config.mode
    return None if config.has_keys or config.user_header else (config.user, config.mode)
