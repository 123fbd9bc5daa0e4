"""What an operator sees: every view answers an admin and nobody else, health says what is wrong, the dashboard's queries run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from routines import code
from servers import connect, roles, user_of

ROOT = Path(__file__).resolve().parents[2]
VIEWS = "select relname from pg_class where relnamespace = 'memoir'::regnamespace and relkind = 'v' and relowner = 'memoir_owner'::regrole order by 1"


@pytest.fixture(scope="module")
def admin(memoir_dsn: str, server_dsn: str) -> Iterator[psycopg.Connection]:
    with (
        roles(server_dsn, boss="login in role memoir_admin") as names,
        connect(user_of(memoir_dsn, names["boss"])) as db,
    ):
        yield db


def problems(db: psycopg.Connection) -> dict[str, str]:
    return {problem: severity for severity, problem, _ in db.execute("select * from memoir.health_problems()")}


def test_every_view_answers_an_admin_only(
    db: psycopg.Connection, admin: psycopg.Connection, memoir_dsn: str, server_dsn: str, user: str
) -> None:
    db.execute("select memoir.open_session(%s, 's', p_system_prompt => 'x')", [user])
    for n in range(12):
        db.execute(
            "select memoir.persist_turn(%s, 's', %s, p_usage => %s)",
            [
                user,
                Jsonb(
                    [
                        {"role": "user", "content": f"My boat number {n} is blue. " * 30},
                        {"role": "assistant", "content": "Noted. " * 40},
                    ]
                ),
                Jsonb({"model": "gpt-4o-mini", "prompt_tokens": 1000, "completion_tokens": 100}),
            ],
        )
    db.execute("select memoir.remember(%s, 'has a blue boat')", [user])
    db.execute("select memoir.compile_context(%s, 's', 'What colour is boat number 3?')", [user])
    db.execute("select memoir.compact_session(%s, 's', 300)", [user])
    for job in ("flush", "hygiene", "promotion"):
        db.execute("call memoir.run_job(%s)", [job])
    rows = {view: admin.execute(f"select * from memoir.{view}").fetchall() for (view,) in db.execute(VIEWS).fetchall()}
    assert set(rows) >= {
        "health",
        "queue_depth",
        "job_status",
        "tiers",
        "compaction_ratios",
        "context_utilisation",
        "costs_by_user",
        "costs_by_session",
        "session_pressure",
        "partition_status",
        "embedding_coverage",
        "hygiene",
        "slow_functions",
        "dead_letters",
    }
    assert [
        view
        for view, found in rows.items()
        if not found and view not in ("slow_functions", "dead_letters", "tier_flow")
    ] == []
    (ratio,) = admin.execute("select min(ratio) from memoir.compaction_ratios").fetchone()
    assert ratio > 1
    eta, fill = admin.execute("select eta, fill from memoir.context_utilisation").fetchone()
    assert 0 < eta <= 1.0001 and 0 < fill <= 1
    cost = 12 * (1000 * 15000 + 100 * 60000) // 1000
    assert admin.execute(
        "select cost_microcents, sessions, turns from memoir.costs_by_user where user_name = %s", [user]
    ).fetchone() == (cost, 1, 24)
    assert admin.execute(
        "select cost_microcents, cost_per_turn from memoir.costs_by_session where user_name = %s", [user]
    ).fetchone() == (cost, cost / 24)
    tokens, active, compacted, pressure, window = admin.execute(
        "select tokens, active_tokens, compacted_tokens, pressure, context_window from memoir.session_pressure where user_name = %s",
        [user],
    ).fetchone()
    assert compacted > 0 and tokens == active + compacted and pressure == pytest.approx(active / window)
    assert admin.execute(
        "select sum(items) >= sum(reached) and min(coverage) >= 0 and max(coverage) <= 1 from memoir.embedding_coverage"
    ).fetchone() == (True,)
    with roles(
        server_dsn,
        app="login in role memoir_app",
        tenant="login in role memoir_tenant",
        reader="login in role memoir_reader",
        jobs="login in role memoir_jobs",
    ) as names:
        for name in names.values():
            with connect(user_of(memoir_dsn, name)) as other:
                assert {code(lambda view=view: other.execute(f"select * from memoir.{view}")) for view in rows} == {
                    "42501"
                }


def test_health(db: psycopg.Connection, admin: psycopg.Connection) -> None:
    for (job,) in db.execute("select job from memoir.list_jobs()").fetchall():
        db.execute(
            "insert into _memoir.job_runs (job, started_at, finished_at, outcome) values (%s, now(), now(), 'done')",
            [job],
        )
    assert problems(admin) == {} and admin.execute("select status, why from memoir.health").fetchone() == (
        "green",
        "all is well",
    )

    db.execute(
        "insert into _memoir.job_runs (job, started_at, finished_at, outcome, error) values ('merge', now(), now(), 'failed', 'disk')"
    )
    assert problems(admin) == {"job merge failed: disk": "yellow"}
    db.execute(
        "insert into _memoir.job_runs (job, started_at, finished_at, outcome, error) select 'merge', now(), now(), 'failed', 'disk' from generate_series(1, 2)"
    )
    assert problems(admin)["job merge has failed 3 times in a row"] == "red" and admin.execute(
        "select status from memoir.health"
    ).fetchone() == ("red",)
    db.execute("delete from _memoir.job_runs where error = 'disk'")

    # What is due half a year from now is not late, whatever the time of day is.
    db.execute("select memoir.set_schedule('sweep', to_char(now() + interval '6 months', '\"0 0 1 \"FMMM\" *\"'))")
    db.execute("update _memoir.job_runs set started_at = now() - interval '20 minutes' where job in ('flush', 'sweep')")
    [(problem, severity)] = problems(admin).items()
    assert re.match(r"job flush has not run for 00:20:", problem) and severity == "red"
    db.execute("update _memoir.job_runs set started_at = now() where job in ('flush', 'sweep')")
    db.execute("select memoir.set_schedule('sweep', 'default')")

    db.execute(
        "insert into _memoir.work_items (kind, user_id, state, run_after, created_at) values "
        "('judge', gen_random_uuid(), 'dead', now(), now()), ('judge', gen_random_uuid(), 'ready', now() - interval '2 h', now())"
    )
    found = problems(admin)
    assert found.pop("1 dead letters of kind judge") == "yellow"
    assert [
        re.match("1 work items of kind judge wait, the oldest for 02:00:0", p) is not None and s == "yellow"
        for p, s in found.items()
    ] == [True]
    db.execute("delete from _memoir.work_items where kind = 'judge'")

    db.execute("select memoir.set_clock('2029-05-06T00:00:00Z')")
    found = problems(admin)
    assert any("partitions lack" in p and s == "red" for p, s in found.items()) and any(
        "clock is set by hand" in p for p in found
    )
    db.execute("call memoir.run_job('partitions')")
    assert [p for p in problems(admin) if "partitions" in p] == []
    db.execute("select memoir.set_clock(null)")
    assert problems(admin) == {}


def test_the_dashboard_runs(admin: psycopg.Connection) -> None:
    """Grafana's macros stand for a condition on the time range."""
    dashboard = json.loads((ROOT / "docs" / "guides" / "grafana.json").read_text())
    queries = [target["rawSql"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) >= 14
    used: set[str] = set()
    for query in queries:
        statement = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 between now() - interval '7 days' and now()", query)
        assert "$" not in statement
        admin.execute(statement)
        used |= set(re.findall(r"memoir\.(\w+)", query))
    assert {view for (view,) in admin.execute(VIEWS)} <= used
    spots = [
        (p["gridPos"]["x"] + dx, p["gridPos"]["y"] + dy)
        for p in dashboard["panels"]
        for dx in range(p["gridPos"]["w"])
        for dy in range(p["gridPos"]["h"])
    ]
    assert len(spots) == len(set(spots)) and max(x for x, _ in spots) < 24


def test_docs_name_what_there_is(admin: psycopg.Connection) -> None:
    text = "".join((ROOT / "docs" / "guides" / name).read_text() for name in ("operations.md", "monitoring.md"))
    views = {view for (view,) in admin.execute(VIEWS)}
    assert [view for view in sorted(views) if f"`{view}`" not in text] == []
    jobs = {job for (job,) in admin.execute("select job from memoir.list_jobs()")}
    assert [job for job in sorted(jobs) if f"`{job}`" not in text] == []
