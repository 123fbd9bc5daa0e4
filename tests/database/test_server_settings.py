"""The defaults of servers, databases and logins: the same calls give the same answers under each."""

from __future__ import annotations

from typing import Any

import pytest
from calls import call, one, persist, recalled, remember, run_job, table
from servers import connect

SETTINGS = {
    "formats": {
        "DateStyle": "German",
        "IntervalStyle": "sql_standard",
        "TimeZone": "Asia/Kolkata",
        "extra_float_digits": "-3",
        "bytea_output": "escape",
        "xmlbinary": "hex",
        "standard_conforming_strings": "off",
        "backslash_quote": "off",
        "quote_all_identifiers": "on",
        "array_nulls": "off",
        "default_text_search_config": "pg_catalog.german",
    },
    "plans": {
        "jit": "on",
        "jit_above_cost": "0",
        "plan_cache_mode": "force_generic_plan",
        "enable_partition_pruning": "off",
        "enable_bitmapscan": "off",
        "enable_indexscan": "off",
        "random_page_cost": "1.1",
        "work_mem": "64kB",
        "max_parallel_workers_per_gather": "4",
        "parallel_setup_cost": "0",
        "parallel_tuple_cost": "0",
        "min_parallel_table_scan_size": "0",
    },
    "sessions": {
        "default_transaction_isolation": "serializable",
        "transform_null_equals": "on",
        "search_path": "pg_temp,public",
        "row_security": "off",
        "check_function_bodies": "off",
        "plpgsql.variable_conflict": "use_column",
        "plpgsql.extra_errors": "all",
        "statement_timeout": "2min",
        "lock_timeout": "30s",
        "idle_in_transaction_session_timeout": "5min",
        "pg_stat_statements.track": "all",
        "session_replication_role": "origin",
    },
}


def answers(dsn: str, user: str, settings: dict[str, str]) -> list[Any]:
    """What a user of that name is told in a session with these settings."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    with connect(dsn, options=options) as db:
        assert all(one(db, "select current_setting(%s)", name) for name in settings)
        at = "2025-03-04T05:06:07Z"
        told = "I moved to Bergen on 3 March 2021, my budget is 1.5 kg. My folder is C:\\temp\\new."
        stored = persist(db, user, "s", {"role": "user", "content": told, "created_at": at}, "Noted.")
        outcomes = [
            remember(db, user, f"My locker number is {number} and it was opened on 02/03/2024.")["outcome"]
            for number in (4711, 4711, 4712)
        ]
        run_job(db, "extract")
        found = [recalled(db, user, asked) for asked in ("Where did I move in March 2021?", "locker number", "Ordner")]
        said = table(db, "recall", user, "my folder", columns=f"content, said_at = '{at}'::timestamptz")
        context = call(db, "compile_context", user, "s", "What is my locker number, and where is my folder?")
        reasons = table(db, "explain_context", user, "s", "Which budget?", columns="kind, included, reason, content")
        memories = sorted(table(db, "list_memories", user, columns="content, type, state"))
        exported = "2025-03-04" in one(db, "select string_agg(e::text, '') from memoir.export_user(%s) e", user)
        forgotten = len(table(db, "forget_about", user, "locker number"))
        left = recalled(db, user, "locker number")
        return [stored["turn_count"], outcomes, found, said, context, reasons, memories, exported, forgotten, left]


@pytest.mark.parametrize("group", SETTINGS)
def test_answers_do_not_depend_on_settings(memoir_dsn: str, group: str) -> None:
    with connect(memoir_dsn) as db:
        db.execute("create extension if not exists pg_stat_statements")
    plain = str(answers(memoir_dsn, f"plain-{group}", {})).replace(f"plain-{group}", "user")
    odd = str(answers(memoir_dsn, f"other-{group}", SETTINGS[group])).replace(f"other-{group}", "user")
    assert odd == plain and "4711" in plain and "Bergen" in plain
