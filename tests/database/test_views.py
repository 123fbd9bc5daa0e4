"""Operators see every view, health names what is wrong, and what a person inspects agrees with what compiles did."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from calls import Db, call, persist, remember, remembered, run_job, set_clock, table
from internals import add_runs, clear_runs, clear_work, move_runs
from routines import World, world_of
from rows import plant
from servers import ROOT

VIEWS = """select relname from pg_class where relnamespace = 'memoir'::regnamespace and relkind = 'v'
    and relowner = 'memoir_owner'::regrole order by 1"""


@pytest.fixture(scope="module")
def world(memoir_dsn: str) -> Iterator[World]:
    with world_of(memoir_dsn, admin="admin") as world:
        yield world


@pytest.fixture
def admin(world: World) -> Db:
    return world.connection("admin")


def view(db: Db, name: str, columns: str, user: str = "") -> tuple[Any, ...]:
    where = "where user_name = %s" if user else ""
    return db.execute(f"select {columns} from memoir.{name} {where}", [user] if user else []).fetchone() or ()


def test_views_show_what_happened(db: Db, admin: Db, user: str) -> None:
    call(db, "open_session", user, "s", system_prompt="x")
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "finish_reason": "stop"}
    for n in range(12):
        used = usage | {"model": "gpt-4o-mini", "latency_ms": n}
        persist(db, user, "s", f"My boat number {n} is blue. " * 30, "Noted. " * 40, p_usage=used)
    remember(db, user, "has a blue boat")
    call(db, "compile_context", user, "s", "What colour is boat number 3?")
    call(db, "compact_session", user, "s", 300)
    for job in ("flush", "hygiene", "promotion"):
        run_job(db, job)
    names = {name for (name,) in db.execute(VIEWS)}
    empty = {name for name in names if not view(admin, name, "1")}
    assert len(names) > 13 and empty <= {"slow_functions", "dead_letters", "tier_flow"}
    assert view(admin, "compaction_ratios", "min(ratio) > 1") == (True,)
    assert view(admin, "context_utilisation", "eta > 0 and eta <= 1.0001 and fill > 0 and fill <= 1") == (True,)
    cost = 12 * (1000 * 15000 + 100 * 60000) // 1000
    assert view(admin, "costs_by_user", "cost_microcents, sessions, turns", user) == (cost, 1, 24)
    assert view(admin, "costs_by_session", "cost_microcents, cost_per_turn", user) == (cost, cost / 24)
    figures = "session_name, day is null, calls, cost_microcents, prompt_tokens, latency_ms_p50, latency_ms_p95"
    calls = admin.execute(f"select {figures} from memoir.model_calls where user_name = %s order by 1, 2", [user])
    assert calls.fetchall() == [
        (name, no_day, 12, cost, 12000, 5.5, 10.45) for name in ("s", None) for no_day in (False, True)
    ]
    (asked,), (said,) = table(db, "history", user, "s", 22)
    assert said["usage"] == {**usage, "latency_ms": 11, "cost_microcents": cost // 12} and "usage" not in asked
    columns = "compacted_tokens > 0, tokens = active_tokens + compacted_tokens, pressure - active_tokens / context_window::real"
    assert view(admin, "session_pressure", columns, user) == (True, True, pytest.approx(0, abs=1e-6))
    reached = "sum(items) >= sum(reached) and min(coverage) >= 0 and max(coverage) <= 1"
    assert view(admin, "embedding_coverage", reached) == (True,)


def test_health_names_what_is_wrong(db: Db, admin: Db) -> None:
    def problems() -> dict[str, str]:
        return {problem: severity for severity, problem, _ in table(admin, "health_problems")}

    add_runs(db, [job for (job,) in table(db, "list_jobs", columns="job")])
    assert problems() == {} and view(admin, "health", "status, why") == ("green", "all is well")

    add_runs(db, ["merge"], "failed", "disk")
    assert problems() == {"job merge failed: disk": "yellow"}
    add_runs(db, ["merge"] * 2, "failed", "disk")
    assert problems()["job merge has failed 3 times in a row"] == "red" and view(admin, "health", "status") == ("red",)
    clear_runs(db, "disk")

    # What is due half a year from now is not late, whatever the time of day is.
    db.execute("select memoir.set_schedule('sweep', to_char(now() + interval '6 months', '\"0 0 1 \"FMMM\" *\"'))")
    move_runs(db, ["flush", "sweep"], "20 minutes")
    [(problem, severity)] = problems().items()
    assert re.match(r"job flush has not run for 00:20:", problem) and severity == "red"
    move_runs(db, ["flush", "sweep"], "0")
    call(db, "set_schedule", "sweep", "default")

    now = call(db, "now")
    for state, due in (("dead", now), ("ready", now - timedelta(hours=2))):
        plant(db, "work_items", kind="judge", state=state, run_after=due)
    found = problems()
    assert found.pop("1 dead letters of kind judge") == "yellow"
    [(problem, severity)] = found.items()
    assert problem.startswith("1 work items of kind judge wait, the oldest for 02:00:0") and severity == "yellow"
    clear_work(db, "judge")

    set_clock(db, "2029-05-06T00:00:00Z")
    found = problems()
    assert any("partitions lack" in p and s == "red" for p, s in found.items())
    assert any("clock is set by hand" in p for p in found)
    db.execute("call memoir.run_job('partitions')")
    assert [p for p in problems() if "partitions" in p] == []
    set_clock(db, None)
    assert problems() == {}


def test_the_load_of_the_server_is_shown(db: Db) -> None:
    slot = "health_test"
    db.execute("select pg_create_physical_replication_slot(%s, true)", [slot])
    columns = "connections between 1 and connections_max, connections_share <= 1, standbys, slot_lag_bytes >= 0"
    try:
        assert view(db, "server_load", columns) == (True, True, 0, True)
        assert not any("connections" in problem for _, problem, _ in table(db, "health_problems"))
    finally:
        db.execute("select pg_drop_replication_slot(%s)", [slot])


def test_dashboard_and_pages_name_every_view(admin: Db) -> None:
    """Grafana's macros mean a condition on the time range."""
    guides = ROOT / "docs" / "guides"
    dashboard = json.loads((guides / "grafana.json").read_text())
    queries = [target["rawSql"] for panel in dashboard["panels"] for target in panel["targets"]]
    for query in queries:
        admin.execute(re.sub(r"\$__timeFilter\((\w+)\)", r"\1 between now() - interval '7 days' and now()", query))
    views = {view for (view,) in admin.execute(VIEWS)}
    assert views <= set(re.findall(r"memoir\.(\w+)", " ".join(queries))) and len(queries) >= 14
    text = "".join((guides / name).read_text() for name in ("operations.md", "monitoring.md"))
    jobs = {job for (job,) in table(admin, "list_jobs", columns="job")}
    assert [name for name in sorted(views | jobs) if f"`{name}`" not in text] == []


def test_users_are_listed_by_name(db: Db, memoir_dsn: str, user: str) -> None:
    """A tenant sees its own, one of a project none."""
    for name in (f"{user}-b", f"{user}-a", user):
        persist(db, name, "s", "Hello there", "Hi.")
    rows = table(db, "list_users", after_user=user, columns="user_name, sessions, memories")
    assert rows[:2] == [(f"{user}-a", 1, 0), (f"{user}-b", 1, 0)] and len(table(db, "list_users", limit=1)) == 1
    one_user: dict[str, Any] = {"role": "tenant", "users": [user]}
    with world_of(memoir_dsn, one=one_user, bound=one_user | {"projects": ["red"]}) as world:
        assert table(world.connection("one"), "list_users", columns="user_name") == [(user,)]
        assert table(world.connection("bound"), "list_users") == []


def test_a_user_in_numbers(db: Db, user: str) -> None:
    persist(db, user, "s", "My dentist is Dr. Okafor", "Noted.")
    old = remembered(db, user, "The dentist is Dr. Okafor", actor="person")
    call(db, "correct", user, old, "The dentist is Dr. Lind")
    stats = call(db, "memory_stats", user)
    keys = ("sessions", "open_sessions", "turns", "memories", "contradictions")
    assert [stats[key] for key in keys] == [1, 1, 2, 1, 0] and stats["states"] == {"active": 1, "superseded": 1}
    assert call(db, "memory_stats", f"{user}-nobody")["memories"] == 0


@pytest.mark.parametrize("flushed", [False, True])
def test_a_window_over_time(db: Db, user: str, flushed: bool) -> None:
    persist(db, user, "old", "The ferry to Runmarö leaves at 8:15.", "Noted.")
    for number in range(12):
        persist(db, user, "s", f"Shelf {number} holds the glazes. " + "They are fired at cone six. " * 20, "Right.")
    made = [call(db, "context", user, "s", "When does the ferry leave?", budget=budget) for budget in (9000, 1200)]
    if flushed:
        db.execute("call memoir.run_job('flush')")
    columns = "compile_id::text, tokens, system_tokens + tools_tokens + recall_tokens, turn_tokens, first_turn"
    rows = table(db, "list_compiles", user, "s", columns=columns)
    assert [row[:2] for row in rows] == [(one_["compile_id"], one_["tokens"]) for one_ in made[::-1]]
    assert rows[0][4] > rows[1][4] == 0
    for _, tokens, parts, turns, _ in rows:
        assert len(turns) == 4 and 0 < tokens - parts - sum(turns) < 40, "what remains is the newest message"


def test_a_compile_taken_apart(db: Db, user: str) -> None:
    """Each item is shown, or there is a reason. A forgotten text is not told afterwards."""
    persist(db, user, "old", "The ferry to Runmarö leaves at 8:15.", "Noted.")
    door = remembered(db, user, "The cellar door of the ferry house opens with 7719")
    made = call(db, "context", user, "new", "When does the ferry to Runmarö leave?")
    columns = "id::text, kind, position, reason, line"
    rows = table(db, "explain_compile", user, made["compile_id"], columns=columns)
    assert [row[0] for row in rows if row[2]] == made["items"]
    assert any("8:15" in row[4] and row[1] == "turn" for row in rows)
    assert all((row[2] is None) == (row[3] is not None) for row in rows)
    call(db, "forget", user, door)
    call(db, "forget_about", user, "the ferry to Runmarö")
    told = str(table(db, "explain_compile", user, made["compile_id"], columns="line"))
    assert "7719" not in told and "8:15" not in told
