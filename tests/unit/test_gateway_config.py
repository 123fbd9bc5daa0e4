"""The gateway's settings: where they come from, which are refused; and what requests cost."""

import hashlib
import json
from pathlib import Path

import pytest
from pg_memoir_gateway.access import find_user
from pg_memoir_gateway.config import Config, ConfigError, User, load
from pg_memoir_gateway.costs import count_cost, estimate_client_cost
from pg_memoir_gateway.dialect import Answer


def test_settings_precedence(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'dsn = "a"\nport = 1\nmode = "recall"\n[[users]]\nname = "alice"\nkey_sha256 = "{"0" * 64}"\n')
    environment = {"PG_MEMOIR_DSN": "b", "PG_MEMOIR_GATEWAY_PORT": "2", "PG_MEMOIR_GATEWAY_CONFIG": str(file)}
    config = load(environment, given={"port": 3, "mode": None})
    assert (config.dsn, config.port, config.mode, config.users[0].name) == ("b", 3, "recall", "alice")
    file.write_text("port = ")
    with pytest.raises(ConfigError, match=f"^configuration {file}: "):
        load(environment)


def test_impossible_settings_are_refused() -> None:
    for given, problem in (
        ({"mode": "best"}, "mode is 'best', not one of observe, recall, manage"),
        ({"port": "http"}, "port is 'http', not of type int"),
        ({"port": 70000}, "port is 70000, not from 0 to 65535"),
        ({"upstream_openai": "ftp://x"}, "upstream_openai is 'ftp://x', not an http or https address"),
        ({"host": "0.0.0.0"}, "host is 0.0.0.0, which others can reach: list users, or name a user_header"),
        ({"dsn": ""}, "dsn is empty"),
        ({"colour": "red"}, "unknown setting colour"),
        ({"users": [{"name": "a", "key_sha256": "x"}]}, "users: key_sha256 of a is not 64 hexadecimal digits"),
        ({"services": [{"name": "s", "mode": "recall"}]}, "services has .* not a table of name and key_sha256"),
        (
            {"users": [{"name": "a", "key_sha256": "0" * 64}], "services": [{"name": "s", "key_sha256": "0" * 64}]},
            "services: s has the key of the user a",
        ),
        ({"clients": "cline"}, "clients is 'cline', not a table of parts of a User-Agent or X-Title"),
        ({"clients": {"cline": "robot"}}, "clients: 'cline' is 'robot', not one of person, mixed, material"),
        ({"clients": {" ": "person"}}, "clients: ' ' is empty, which every client has in its name"),
    ):
        with pytest.raises(ConfigError, match="^" + problem):
            load({}, given={"dsn": "x"} | given)


@pytest.mark.parametrize("dsn", ["host=h password=secret1 user=u", "postgresql://u:secret1@h/d"])
def test_shown_settings_hold_no_password(dsn: str) -> None:
    assert "secret1" not in json.dumps(load({}, given={"dsn": dsn}).as_dict())


def test_user_of_a_request() -> None:
    """Of two ways in, a listed key comes first."""
    for headers, listed, by_header, whose in (
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
    ):
        users = (User("ann", hashlib.sha256(b"sk-ann").hexdigest(), "observe"),) if listed else ()
        assert find_user(Config(users=users, user_header=by_header), headers) == whose


CACHED = {"input_tokens": 10, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000, "output_tokens": 7}
SPLIT = {"cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40}}


def test_cost_of_any_usage() -> None:
    for usage, cost in (
        (CACHED, 235),
        (CACHED | SPLIT | {"cache_read_input_tokens": 0}, 165),
        ({"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 900}}, 190),
        ({"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}, "output_tokens": 7}, 190),
        ({"input_tokens": 10, "cache_creation_input_tokens": None}, 10),
        ({}, 0),
    ):
        assert count_cost(usage) == pytest.approx(cost)


def test_cost_of_the_clients_list_and_usage() -> None:
    told = [estimate_client_cost(*case) for case in ((100, 4_000, 0), (1_300, 0, 4_000), (100, -4_000, 0))]
    assert told == pytest.approx([200, 150, 0])
    cached = {"cache_read_tokens": 1000, "cache_write_tokens": 60, "cache_write_1h_tokens": 40}
    counts = {"prompt_tokens": 1110, "completion_tokens": 7, "latency_ms": 5} | cached
    assert Answer(usage=CACHED | SPLIT).counts(5) == counts
