"""The gateway's settings: where they come from, what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pg_memoir_gateway.access import find_user
from pg_memoir_gateway.config import Config, ConfigError, User, load

KEY = "0" * 64


def test_settings_precedence(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'dsn = "a"\nport = 1\nmode = "recall"\n[[users]]\nname = "alice"\nkey_sha256 = "{KEY}"\n')
    environment = {"PG_MEMOIR_DSN": "b", "PG_MEMOIR_GATEWAY_PORT": "2", "PG_MEMOIR_GATEWAY_CONFIG": str(file)}
    config = load(environment, given={"port": 3, "mode": None})
    assert (config.dsn, config.port, config.mode, config.users[0].name) == ("b", 3, "recall", "alice")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"mode": "best"}, "mode is 'best', not one of observe, recall, manage"),
        ({"port": "http"}, "port is 'http', not of type int"),
        ({"port": 70000}, "port is 70000, not from 0 to 65535"),
        ({"upstream_openai": "ftp://x"}, "upstream_openai is 'ftp://x', not an http or https address"),
        ({"host": "0.0.0.0"}, "host is 0.0.0.0, which others can reach: list users, or name a user_header"),
        ({"dsn": ""}, "dsn is empty"),
        ({"colour": "red"}, "unknown setting colour"),
        ({"users": [{"name": "a", "key_sha256": "x"}]}, "users: key_sha256 of a is not 64 hexadecimal digits"),
        ({"clients": "cline"}, "clients is 'cline', not a table of parts of a User-Agent or X-Title"),
        ({"clients": {"cline": "robot"}}, "clients: 'cline' is 'robot', not one of person, mixed, material"),
        ({"clients": {"cline": 1}}, "clients: 'cline' is 1, not one of person, mixed, material"),
        ({"clients": {" ": "person"}}, "clients: ' ' is empty, which every client has in its name"),
    ],
)
def test_what_can_not_be_is_refused_by_its_name_and_value(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match="^" + problem.replace("[", r"\[")):
        load({}, given={"dsn": "x"} | given)


@pytest.mark.parametrize("dsn", ["host=h password=secret1 user=u", "postgresql://u:secret1@h/d"])
def test_what_is_shown_holds_no_password(dsn: str) -> None:
    assert "secret1" not in json.dumps(load({}, given={"dsn": dsn}).shown())


@pytest.mark.parametrize(
    ("headers", "listed", "by_header", "whose"),
    [
        ({}, False, "", ("local", "manage")),
        ({"x-api-key": "sk-ann"}, True, "", ("ann", "observe")),
        ({"authorization": "bearer sk-ann"}, True, "", ("ann", "observe")),
        ({"x-api-key": "other", "authorization": "Bearer sk-ann"}, True, "", ("ann", "observe")),
        ({"authorization": "Basic sk-ann"}, True, "", None),
        ({"x-user": "bob"}, True, "", None),
        ({"x-user": "bob"}, False, "X-User", ("bob", "manage")),
        ({"x-user": "bob", "x-api-key": "sk-ann"}, True, "X-User", ("ann", "observe")),
        ({"x-user": "bob", "x-api-key": "other"}, True, "X-User", ("bob", "manage")),
        ({"x-user": ""}, False, "X-User", None),
    ],
)
def test_who_asks(headers: dict[str, str], listed: bool, by_header: str, whose: tuple[str, str] | None) -> None:
    """Of two ways in, a listed key comes first."""
    users = (User("ann", hashlib.sha256(b"sk-ann").hexdigest(), "observe"),) if listed else ()
    assert find_user(Config(users=users, user_header=by_header), headers) == whose
