"""Settings: what is refused, which of default, install, user and session wins, what survives an upgrade; the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from calls import one
from psycopg.types.json import Jsonb
from servers import connect, install, roles, user_of


def setting(db: psycopg.Connection, key: str) -> Any:
    return one(db, "select value from memoir.list_settings() where key = %s", key)


def put(db: psycopg.Connection, key: str, value: Any) -> None:
    db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])


@pytest.fixture(autouse=True)
def _defaults(db: psycopg.Connection) -> Iterator[None]:
    yield
    db.execute(
        "select memoir.reset_setting(key) from memoir.list_settings() where value is distinct from default_value"
    )


# Values ---------------------------------------------------------------------------------------------------------------

REFUSED = [
    ("recall_tokens_max", "500"),
    ("recall_tokens_max", 1.5),
    ("recall_tokens_max", True),
    ("recall_tokens_max", None),
    ("recall_tokens_max", [5]),
    ("relevance_floor", "1"),
    ("relevance_floor", {"fact": 1}),
    ("default_model", 5),
    ("default_model", None),
    ("default_model", "no-such-model"),
    ("text_search_config", "klingon"),
    ("text_search_config", 1),
    ("type_weights", 1),
    ("type_weights", {"fact": "1"}),
    ("type_weights", [1]),
    ("clock", 5),
    ("clock", "yesterday"),
    ("clock", "2026-01-01"),
    ("clock", "2026-01-01 10:00"),
    ("clock", "2026-13-01 00:00Z"),
    ("clock", "3000-01-01 00:00Z"),
    ("recall_tokens_max", -1),
    ("recall_tokens_max", 1000001),
    ("window_steps", 0),
    ("window_steps", 17),
    ("half_life_days", {"fact": 365, "event": 0}),
    ("type_weights", {"fact": 10.5}),
    ("tool_result_share", 0),
    ("budget_action", "shout"),
    ("budget_action", "Warn"),
    ("budget_action", ""),
]


@pytest.mark.parametrize(("key", "value"), REFUSED, ids=[f"{key}-{json.dumps(value)}" for key, value in REFUSED])
def test_wrong_values_are_refused_by_name(db: psycopg.Connection, user: str, key: str, value: Any) -> None:
    before = setting(db, key)
    with pytest.raises(psycopg.Error, match=f"setting {key} can't be ") as caught:
        put(db, key, value)
    assert caught.value.sqlstate == "PM015" and caught.value.diag.message_hint
    assert setting(db, key) == before
    if one(db, "select overridable from memoir.list_settings() where key = %s", key) and value is not None:
        with pytest.raises(psycopg.Error, match=key) as caught:
            db.execute("select memoir.set_user_settings(%s, %s)", [user, Jsonb({key: value})])
        assert caught.value.sqlstate == "PM015"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("recall_tokens_max", 0),
        ("recall_tokens_max", 1000000),
        ("window_steps", 1),
        ("window_steps", 16),
        ("tool_result_share", 0.01),
        ("budget_action", "warn"),
        ("budget_action", "refuse"),
        ("type_weights", {}),
        ("type_weights", {"fact": 0, "event": 10}),
        ("text_search_config", "german"),
        ("text_search_config", "pg_catalog.simple"),
        ("embedder_socket", ""),
        ("clock", "2026-01-01T10:00:00.5+02:00"),
    ],
)
def test_values_at_the_edge_are_taken(db: psycopg.Connection, key: str, value: Any) -> None:
    put(db, key, value)
    assert setting(db, key) == value


def test_every_default_is_within_its_range(db: psycopg.Connection) -> None:
    rows = db.execute("select key, default_value from memoir.list_settings()").fetchall()
    assert len(rows) > 40
    for key, value in rows:
        put(db, key, value)


@pytest.mark.parametrize(
    "call",
    [
        "set_setting('no_such', '1')",
        "reset_setting('no_such')",
        "set_setting(null, '1')",
        "set_user_settings('u', '{\"no_such\": 1}')",
        "open_session('u', 's', p_settings => '{\"no_such\": 1}')",
        "set_user_settings('u', '{\"no_such\": null}')",
    ],
)
def test_unknown_settings(db: psycopg.Connection, call: str) -> None:
    with pytest.raises(psycopg.Error, match="unknown setting") as caught:
        db.execute(f"select memoir.{call}")
    assert caught.value.sqlstate == "PM015"


def test_reset_returns_to_the_default(db: psycopg.Connection) -> None:
    put(db, "window_steps", 7)
    put(db, "profile_tokens", 7)
    db.execute("select memoir.reset_setting('window_steps')")
    assert (setting(db, "window_steps"), setting(db, "profile_tokens")) == (4, 7)


def test_an_upgrade_keeps_what_was_set(db: psycopg.Connection, memoir_dsn: str, user: str) -> None:
    db.execute(
        "select memoir.open_session(%s, 's', p_settings => '{\"window_steps\": 9}'), memoir.set_user_settings(%s, '{\"window_steps\": 8}')",
        [user, user],
    )
    put(db, "recall_tokens_max", 1234)
    install(memoir_dsn)
    assert setting(db, "recall_tokens_max") == 1234
    assert one(db, "select config -> 'recall_tokens_max' from _memoir.settings_merged") == 1234
    assert one(db, "select memoir.session_info(%s, 's') -> 'settings'", user) == {"window_steps": 9}
    assert one(db, "select memoir.set_user_settings(%s, '{}')", user) == {"window_steps": 8}


# Overrides ------------------------------------------------------------------------------------------------------------


def recalled(db: psycopg.Connection, user: str, session: str) -> int:
    # A knowledge task: others get more or less than the setting, by their share of the budget.
    return one(
        db, "select memoir.context(%s, %s, 'Which boats lie in the harbour?', p_task => 'knowledge')", user, session
    )["recall_tokens"]


def test_session_over_user_over_install_over_default(db: psycopg.Connection, user: str) -> None:
    for n in range(30):
        db.execute(
            "select memoir.remember(%s, %s)",
            [user, f"Boat number {n} lies in the harbour, at pier {n * n}, since the spring tide."],
        )

    def session(name: str, **settings: int | None) -> int:
        db.execute("select memoir.open_session(%s, %s, p_settings => %s)", [user, name, Jsonb(settings)])
        return recalled(db, user, name)

    plain = session("plain")
    assert plain > 300
    put(db, "recall_tokens_max", 250)
    assert 150 < recalled(db, user, "plain") <= 250
    db.execute("select memoir.set_user_settings(%s, '{\"recall_tokens_max\": 150}')", [user])
    assert 0 < recalled(db, user, "plain") <= 150
    assert 250 < session("roomy", recall_tokens_max=300) <= 300
    assert session("none", recall_tokens_max=0) == 0
    assert 150 < session("none", recall_tokens_max=200) <= 200  # what is given changes an open session
    assert 0 < session("none", recall_tokens_max=None) <= 150  # null removes: the user's
    assert one(db, "select memoir.session_info(%s, 'none') -> 'settings'", user) == {}
    assert one(db, 'select memoir.set_user_settings(%s, \'{"recall_tokens_max": null, "window_steps": 3}\')', user) == {
        "window_steps": 3
    }
    assert 150 < recalled(db, user, "none") <= 250  # and the install's
    db.execute("select memoir.reset_setting('recall_tokens_max')")
    assert recalled(db, user, "none") == plain


def test_one_users_override_is_nobody_elses(db: psycopg.Connection, user: str) -> None:
    for who in (user, user + "-other"):
        db.execute(
            "select memoir.remember(%s, 'Two boats lie in the harbour.'), memoir.open_session(%s, 's')", [who, who]
        )
    db.execute("select memoir.set_user_settings(%s, '{\"recall_tokens_max\": 0}')", [user])
    assert recalled(db, user, "s") == 0 < recalled(db, user + "-other", "s")


def test_what_is_not_overridable(db: psycopg.Connection, user: str) -> None:
    keys = [key for (key,) in db.execute("select key from memoir.list_settings() where not overridable")]
    assert {"clock", "text_bytes_max", "embedder_socket"} <= set(keys)
    db.execute("select memoir.open_session(%s, 's')", [user])
    for key in keys:
        change = Jsonb(
            {
                "window_steps": 5,
                key: one(db, "select default_value from memoir.list_settings() where key = %s", key)
                or "2026-01-01 00:00Z",
            }
        )
        for query in (
            "select memoir.set_user_settings(%s, %s)",
            "select memoir.open_session(%s, 's', p_settings => %s)",
        ):
            with pytest.raises(psycopg.Error, match=f"{key} can't be overridden") as caught:
                db.execute(query, [user, change])
            assert caught.value.sqlstate == "PM015"
    assert (
        one(db, "select memoir.set_user_settings(%s, '{}')", user)
        == one(db, "select memoir.session_info(%s, 's') -> 'settings'", user)
        == {}
    )


@pytest.mark.parametrize("value", [[], 5, "window_steps"])
def test_overrides_are_an_object(db: psycopg.Connection, user: str, value: Any) -> None:
    for query in ("select memoir.set_user_settings(%s, %s)", "select memoir.open_session(%s, 's', p_settings => %s)"):
        with pytest.raises(psycopg.Error, match="settings must be a JSON object") as caught:
            db.execute(query, [user, Jsonb(value)])
        assert caught.value.sqlstate == "PM014"


# The clock ------------------------------------------------------------------------------------------------------------


def test_the_clock_stands_still_until_it_is_released(db: psycopg.Connection, user: str) -> None:
    at = datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    db.execute("select memoir.set_clock(%s)", [at])
    assert one(db, "select memoir.now()") == one(db, "select memoir.now()") == at
    db.execute('select memoir.persist_turn(%s, \'s\', \'[{"role": "user", "content": "Hello"}]\')', [user])
    assert datetime.fromisoformat(one(db, "select memoir.history(%s, 's')", user)["created_at"]) == at
    db.execute("select memoir.set_clock(null)")
    assert abs(one(db, "select memoir.now() - pg_catalog.now()")) < timedelta(seconds=1)


def test_only_an_admin_sets_clock_and_settings(db: psycopg.Connection, memoir_dsn: str) -> None:
    with roles(
        memoir_dsn,
        app="login in role memoir_app",
        tenant="login in role memoir_tenant",
        jobs="login in role memoir_jobs",
        admin="login in role memoir_admin",
    ) as logins:
        for key, login in logins.items():
            with connect(user_of(memoir_dsn, login)) as own:
                for call in (
                    "set_clock('2030-01-01 00:00Z')",
                    "set_setting('window_steps', '5')",
                    "reset_setting('window_steps')",
                ):
                    if key == "admin":
                        own.execute(f"select memoir.{call}")
                    else:
                        with pytest.raises(psycopg.errors.InsufficientPrivilege):
                            own.execute(f"select memoir.{call}")
        assert one(db, "select memoir.now()") == datetime(2030, 1, 1, tzinfo=UTC) and setting(db, "window_steps") == 4
