"""Settings refuse wrong values by name, a session's win over a user's over the install's, and the clock is an admin's."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from calls import Db, call, history, one, persist, recalled, remember, run_job, set_clock, set_settings, table
from psycopg.types.json import Jsonb
from refusals import refusal
from servers import connect, install


def read_settings(db: Db, column: str = "value", where: str = "true") -> dict[str, Any]:
    return dict(db.execute(f"select key, {column} from memoir.list_settings() where {where}").fetchall())


@pytest.fixture(autouse=True)
def _defaults(db: Db) -> Iterator[None]:
    yield
    changed = "memoir.list_settings() where value is distinct from default_value"
    db.execute(f"select memoir.reset_setting(key) from {changed}")


REFUSED: dict[str, list[Any]] = {
    "recall_tokens_max": ["500", 1.5, True, None, [5], -1, 1000001],
    "relevance_floor": ["1", {"fact": 1}],
    "default_model": [5, None, "no-such-model"],
    "text_search_config": ["klingon", 1],
    "type_weights": [1, {"fact": "1"}, [1], {"fact": 10.5}],
    "clock": [5, "yesterday", "2026-01-01", "2026-01-01 10:00", "2026-13-01 00:00Z", "3000-01-01 00:00Z"],
    "window_steps": [0, 17],
    "half_life_days": [{"fact": 365, "event": 0}],
    "tool_result_share": [0],
    "budget_action": ["shout", "Warn", ""],
}
TAKEN: dict[str, list[Any]] = {
    "recall_tokens_max": [0, 1000000],
    "window_steps": [1, 16],
    "tool_result_share": [0.01],
    "budget_action": ["warn", "refuse"],
    "type_weights": [{}, {"fact": 0, "event": 10}],
    "text_search_config": ["german", "pg_catalog.simple"],
    "embedder_socket": [""],
    "clock": ["2026-01-01T10:00:00.5+02:00"],
}


@pytest.mark.parametrize("key", REFUSED)
def test_wrong_values_are_refused_by_name(db: Db, user: str, key: str) -> None:
    before, is_overridable = read_settings(db)[key], read_settings(db, "overridable")[key]
    for value in REFUSED[key]:
        error = refusal(db, "set_setting", key=key, value=Jsonb(value))
        assert error.sqlstate == "PM015" and error.diag.message_hint, value
        assert f"setting {key} can't be " in str(error), value
        if is_overridable and value is not None:
            error = refusal(db, "set_user_settings", user=user, settings={key: value})
            assert error.sqlstate == "PM015" and key in str(error), value
    assert read_settings(db)[key] == before


def test_values_at_the_edge_and_defaults_are_taken(db: Db) -> None:
    for key, values in TAKEN.items():
        for value in values:
            set_settings(db, **{key: value})
            assert read_settings(db)[key] == value
    defaults = read_settings(db, "default_value")
    assert len(defaults) > 40
    set_settings(db, **defaults)
    assert read_settings(db) == defaults


def test_reset_and_upgrade_keep_what_was_set(db: Db, memoir_dsn: str, user: str) -> None:
    set_settings(db, window_steps=7, recall_tokens_max=1234)
    call(db, "reset_setting", "window_steps")
    call(db, "open_session", user, "s", settings={"window_steps": 9})
    call(db, "set_user_settings", user, {"window_steps": 8})
    install(memoir_dsn)
    assert (read_settings(db)["recall_tokens_max"], read_settings(db)["window_steps"]) == (1234, 4)
    assert call(db, "session_info", user, "s")["settings"] == {"window_steps": 9}
    assert call(db, "set_user_settings", user, Jsonb({})) == {"window_steps": 8}


def test_session_over_user_over_install_over_default(db: Db, user: str) -> None:
    for who in (user, user + "-other"):
        for n in range(30):
            remember(db, who, f"Boat number {n} lies in the harbour, at pier {n * n}, since the spring tide.")

    def count_recall(session: str, who: str = user, **settings: int | None) -> int:
        # A knowledge task: others get more or less than the setting, by their share of the budget.
        call(db, "open_session", who, session, settings=Jsonb(settings))
        asked = "Which boats lie in the harbour?"
        return int(call(db, "context", who, session, asked, task="knowledge")["recall_tokens"])

    plain = count_recall("plain")
    assert plain > 300
    set_settings(db, recall_tokens_max=250)
    assert 150 < count_recall("plain") <= 250
    call(db, "set_user_settings", user, {"recall_tokens_max": 150})
    assert 0 < count_recall("plain") <= 150 < count_recall("plain", user + "-other") <= 250  # nobody else's
    assert 250 < count_recall("roomy", recall_tokens_max=300) <= 300
    assert count_recall("none", recall_tokens_max=0) == 0
    assert 150 < count_recall("none", recall_tokens_max=200) <= 200  # what is given changes an open session
    assert 0 < count_recall("none", recall_tokens_max=None) <= 150  # null removes: the user's
    assert call(db, "session_info", user, "none")["settings"] == {}
    left = call(db, "set_user_settings", user, {"recall_tokens_max": None, "window_steps": 3})
    assert left == {"window_steps": 3} and 150 < count_recall("none") <= 250  # and the install's
    call(db, "reset_setting", "recall_tokens_max")
    assert count_recall("none") == plain


def test_some_settings_have_no_override(db: Db, user: str) -> None:
    fixed = read_settings(db, "default_value", "not overridable")
    assert {"clock", "text_bytes_max", "embedder_socket"} <= set(fixed)
    call(db, "open_session", user, "s")
    for key, value in fixed.items():
        change = {"window_steps": 5, key: value or "2026-01-01 00:00Z"}
        for function, more in (("set_user_settings", {}), ("open_session", {"session": "s"})):
            error = refusal(db, function, user=user, settings=change, **more)
            assert error.sqlstate == "PM015" and f"{key} can't be overridden" in str(error)
    assert call(db, "set_user_settings", user, Jsonb({})) == {} == call(db, "session_info", user, "s")["settings"]


def test_the_clock_is_fixed_until_it_is_released(db: Db, user: str) -> None:
    at = datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    set_clock(db, at)
    assert call(db, "now") == call(db, "now") == at
    persist(db, user, "s", "Hello")
    assert datetime.fromisoformat(history(db, user, "s")[0]["created_at"]) == at
    set_clock(db, None)
    assert abs(one(db, "select memoir.now() - pg_catalog.now()")) < timedelta(seconds=1)


SERVER = {
    "formats": """DateStyle=German IntervalStyle=sql_standard TimeZone=Asia/Kolkata extra_float_digits=-3 bytea_output=escape
        xmlbinary=hex standard_conforming_strings=off backslash_quote=off quote_all_identifiers=on array_nulls=off
        default_text_search_config=pg_catalog.german""",
    "plans": """jit=on jit_above_cost=0 plan_cache_mode=force_generic_plan enable_partition_pruning=off enable_bitmapscan=off
        enable_indexscan=off random_page_cost=1.1 work_mem=64kB max_parallel_workers_per_gather=4 parallel_setup_cost=0
        parallel_tuple_cost=0 min_parallel_table_scan_size=0""",
    "sessions": """default_transaction_isolation=serializable transform_null_equals=on search_path=pg_temp,public
        row_security=off check_function_bodies=off plpgsql.variable_conflict=use_column plpgsql.extra_errors=all
        statement_timeout=2min lock_timeout=30s idle_in_transaction_session_timeout=5min session_replication_role=origin""",
}


def answers(dsn: str, user: str, settings: str) -> str:
    """What a user of that name is told in a session with these settings."""
    with connect(dsn, options=" ".join(f"-c {setting}" for setting in settings.split())) as db:
        at = "2025-03-04T05:06:07Z"
        told = "I moved to Bergen on 3 March 2021, my budget is 1.5 kg. My folder is C:\\temp\\new."
        stored = persist(db, user, "s", {"role": "user", "content": told, "created_at": at}, "Noted.")
        said = "My locker number is {} and it was opened on 02/03/2024."
        outcomes = [remember(db, user, said.format(number))["outcome"] for number in (4711, 4711, 4712)]
        run_job(db, "extract")
        found = [recalled(db, user, asked) for asked in ("Where did I move in March 2021?", "locker number", "Ordner")]
        told_at = table(db, "recall", user, "my folder", columns=f"content, said_at = '{at}'::timestamptz")
        context = call(db, "compile_context", user, "s", "What is my locker number, and where is my folder?")
        reasons = table(db, "explain_context", user, "s", "Which budget?", columns="kind, included, reason, content")
        memories = sorted(table(db, "list_memories", user, columns="content, type, state"))
        exported = "2025-03-04" in json.dumps([line for (line,) in table(db, "export_user", user)])
        forgotten = len(table(db, "forget_about", user, "locker number"))
        left = recalled(db, user, "locker number")
    said = [stored["turn_count"], outcomes, found, told_at, context, reasons, memories, exported, forgotten, left]
    return str(said).replace(user, "user")


@pytest.mark.parametrize("group", SERVER)
def test_answers_do_not_depend_on_server_settings(memoir_dsn: str, group: str) -> None:
    """The defaults of servers, databases and logins."""
    plain = answers(memoir_dsn, f"plain-{group}", "")
    assert answers(memoir_dsn, f"other-{group}", SERVER[group]) == plain and "4711" in plain and "Bergen" in plain
