"""Plans: whatever a compile reads, it reads from its user's partitions through an index, however much else there is."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb
from servers import add_python, apply, connect, database, roles

BIG = 300  # rows above which a leaf must not be read from end to end
WORDS = (
    "cat dog house river bridge weather invoice March Oslo Bergen guitar piano train ticket doctor garden bread recipe school teacher "
    "mountain island harbour letter window engine battery password allergy hospital"
).split()
VECTOR = [0.05 * (n % 7) for n in range(384)]
CALLS = {
    "compile by words": "select memoir.compile_context('alice', 'new', 'Which doctor treats my allergy in Bergen?')",
    "compile": "select memoir.compile_context('alice', 'new', 'Which doctor treats my allergy in Bergen?', p_query_embedding => %(vector)s::real[])",
    "compile in a long session": "select memoir.compile_context('alice', 'long', 'Which doctor treats my allergy?', p_query_embedding => %(vector)s::real[])",
    "compile by signs": "select memoir.compile_context('alice', 'new', 'Which doctor treats my allergy?', p_query_embedding => %(vector)s::real[])",
    "compile as of": "select memoir.compile_context('alice', 'new', 'Which doctor?', p_as_of => '2026-04-01T00:00:00Z', p_query_embedding => %(vector)s::real[])",
    "context": "select memoir.context('alice', 'new', 'Which doctor treats my allergy in Bergen?', p_query_embedding => %(vector)s::real[])",
    "explain": "select * from memoir.explain_context('alice', 'new', 'Which doctor treats my allergie?', p_query_embedding => %(vector)s::real[])",
    "recall": "select * from memoir.recall('alice', 'doctor allergy', p_query_embedding => %(vector)s::real[])",
    "match": "select * from memoir.match_memories('alice', %(vector)s::real[], 0.1)",
    "history": "select * from memoir.history('alice', 'long', 100, 120)",
    "session": "select memoir.session_info('alice', 'long')",
    "persist": 'select memoir.persist_turn(\'alice\', \'long\', \'[{"role": "user", "content": "Which doctor?"}, {"role": "assistant", "content": "This one."}]\')',
    "remember": "select memoir.remember('alice', 'The doctor is in Bergen', p_embedding => %(vector)s::real[])",
    "forget": "select memoir.forget('alice', (select id from memoir.recall('alice', 'fact', p_kinds => '{memory}', p_limit => 1)))",
}
SETTINGS = {"compile by signs": {"exact_vectors_max": 10}}
# What the arms read: a compile that leaves one of them out proves nothing.
MEASURED = ["compile", "compile in a long session", "explain", "recall"]
ALONE: dict[str, tuple[int, int]] = {}  # what they cost before there was anybody else
ARMS = {
    "search_postings", "search_tail", "embeddings", "search_items", "conversation_history", "memory_store",
    "memory_stats", "sessions", "user_counters",
}  # fmt: skip


def sentence(n: int) -> str:
    return " ".join(WORDS[(n * k + n // 7) % len(WORDS)] for k in (1, 3, 7, 11, 13, 17)) + f" number {n}."


def fill(db: psycopg.Connection, turns: int, memories: int) -> None:
    """A user with turns in six months, posting lists and a tail, vectors of every item, memories."""
    for month in range(1, 7):
        db.execute("select memoir.set_clock(%s)", [f"2026-{month:02}-10T00:00:00Z"])
        for session in (f"s{month}", "long"):
            texts = [sentence(n + month * 1000) for n in range(turns // 12 // 2 * 2)]
            messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
            db.execute("select memoir.persist_turn('alice', %s, %s)", [session, Jsonb(messages)])
        if month == 5:
            db.execute("select _memoir.merge_tail(user_id) from _memoir.users")
    facts = "select memoir.remember('alice', 'fact: ' || (%s::text[])[1 + n %% 20] || ' ' || n)"
    db.execute(f"{facts} from generate_series(1, %s) n", [WORDS, memories])
    # The same ones in every database: what is used weighs, and what is found decides which months are read.
    used = "select memory_id from _memoir.memory_store order by content limit %s"
    db.execute(f"update _memoir.memory_stats set access_count = 3 where memory_id in ({used})", [memories // 10])
    db.execute("""insert into _memoir.embeddings (user_id, item_no, model_id, embedding)
        select i.user_id, i.item_no, m.model_id, (select array_agg(sin(i.item_no * k)) from generate_series(1, 384) k)::real[]::memoir_extensions.halfvec
        from _memoir.search_items i, _memoir.embedding_models m where m.status = 'active' on conflict do nothing""")
    # Signs are packed but for the last ones.
    cursors = "select c.user_id, m.model_id, c.next_item - 1 from _memoir.user_counters c, _memoir.embedding_models m where m.status = 'active'"
    through = "insert into _memoir.embedding_cursors (user_id, model_id, through_item)"
    db.execute(f"{through} {cursors} on conflict do nothing")
    with db.transaction():
        db.execute("set local search_path = memoir_extensions, pg_catalog")
        db.execute("select _memoir.pack_signs(user_id, model_id) from _memoir.embedding_cursors")


COLUMNS = """select string_agg(attname, ', ') from pg_attribute where attrelid = ('_memoir.' || %s)::regclass
    and attnum > 0 and attgenerated = '' and not attisdropped"""


def crowd(db: psycopg.Connection, users: int) -> None:
    """Copies of her rows for that many users of her part, so that reading a leaf from end to end never pays."""
    for (table,) in db.execute("select table_name::text from _memoir.partitioned_tables where not unlogged").fetchall():
        (columns,) = db.execute(COLUMNS, [table]).fetchone()
        db.execute(f"create temp table copy as select {columns} from _memoir.{table}")
        for n in range(users):
            db.execute("update copy set user_id = (select id from neighbours where n = %s)", [n])
            db.execute(f"insert into _memoir.{table} ({columns}) select * from copy")
        db.execute("drop table copy")


@pytest.fixture(scope="module")
def crowded(server_dsn: str) -> Iterator[str]:
    with database(server_dsn) as dsn:
        assert apply(dsn, 4) == ""
        add_python(dsn)
        with connect(dsn) as db:
            db.execute("call memoir.ensure_partitions(0)")
            fill(db, 360, 120)
            db.execute("vacuum analyze")
            ALONE.update({name: cost(dsn, CALLS[name]) for name in MEASURED})
            db.execute("""create temp table neighbours as select row_number() over () - 1 as n, id from (
                select gen_random_uuid() as id from generate_series(1, 200)) x where _memoir.part_of(id) = memoir.part_of('alice') limit 24""")
            crowd(db, 24)
            db.execute("vacuum analyze")  # so that no autovacuum changes plans meanwhile
            with roles(dsn, tenant="login in role memoir_tenant") as names:
                db.execute("select memoir.bind_login(%s, array['alice'])", [names["tenant"]])
                db.execute(f"alter database {conninfo_to_dict(dsn)['dbname']} set test.tenant = '{names['tenant']}'")
                yield dsn


@dataclass
class Seen:
    """What the statements of a call did, from auto_explain."""

    plans: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)

    def note(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:" in text:
            plan = json.loads(text[text.index("{") :])
            statement = " ".join(plan["Query Text"].split())[:200]
            self.plans.append((statement, plan["Plan"]))
            if "JIT" in plan:
                self.compiled.append(statement)

    def scans(self) -> Iterator[tuple[str, dict[str, Any]]]:
        def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
            yield node
            for child in node.get("Plans", []):
                yield from walk(child)

        for statement, plan in self.plans:
            for node in walk(plan):
                if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node):
                    yield statement, node


def watch(dsn: str, query: str, jit: str = "off", **settings: Any) -> Seen:
    seen = Seen()
    with connect(dsn) as db:
        db.execute("load 'auto_explain'")
        logged = {"min_duration": "0", "nested_statements": "on", "analyze": "on", "timing": "off", "format": "json"}
        for name, value in (logged | {"level": "notice"}).items():
            db.execute(f"set auto_explain.log_{name} = '{value}'")
        db.execute(f"set jit = {jit}")
        db.execute("set jit_above_cost = 0")
        with db.transaction():
            for key, value in settings.items():
                db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])
            # Asked by a tenant, whose rows the policies would filter if the plans were its own.
            db.execute(f"set session authorization {db.execute('show test.tenant').fetchone()[0]}")
            db.add_notice_handler(seen.note)
            db.execute(query, {"vector": VECTOR})
            raise psycopg.Rollback()
    return seen


@pytest.mark.parametrize("name", MEASURED)
def test_no_statement_is_compiled(crowded: str, name: str) -> None:
    """With jit = on, PostgreSQL's default, compiling takes longer than any statement of ours."""
    seen = watch(crowded, CALLS[name], jit="on")
    # The caller's own statement is not ours, and shows that compiling works here.
    assert {statement for statement in seen.compiled if "('alice'" not in statement} == set()
    with connect(crowded) as db:
        db.execute("set jit = on")
        (can_compile,) = db.execute("select pg_jit_available()").fetchone()
    if can_compile:
        assert seen.compiled


def test_a_compile_writes_no_log(crowded: str) -> None:
    """So it waits for no disk. The first one makes what a connection and a page are read with."""
    with connect(crowded) as db:
        for _ in range(2):
            asked = f"explain (analyze, wal, format json) {CALLS['compile']}"
            plan = db.execute(asked, {"vector": VECTOR}).fetchone()[0][0]["Plan"]
        left = "select count(*) from _memoir.compile_buffer b join _memoir.users u using (user_id) where external_id = 'alice'"
        assert db.execute(left).fetchone()[0] >= 2
    assert plan["WAL Records"] == 0


def test_planning_counts_no_tokens(crowded: str) -> None:
    """The planner calls a stable function within unnest. Each count of a question is a request to the model server."""
    with connect(crowded) as db, db.transaction():
        db.execute("set local track_functions = 'pl'")
        db.execute(CALLS["compile"], {"vector": VECTOR})
        calls = "select pg_stat_get_xact_function_calls('_memoir.count_tokens(text[],text)'::regprocedure)"
        assert db.execute(calls).fetchone()[0] == 1, "the question"


@pytest.mark.parametrize("name", CALLS)
def test_plans_stay_in_the_users_part_and_use_indexes(crowded: str, name: str) -> None:
    with connect(crowded) as db:
        part = db.execute("select memoir.part_of('alice')").fetchone()[0]
        ours = "relnamespace = '_memoir'::regnamespace and relkind"
        sizes = dict(db.execute(f"select relname, reltuples from pg_class where {ours} = 'r'").fetchall())
        tables = {name for (name,) in db.execute("select table_name::text from _memoir.partitioned_tables")}
        owners = "select c.relname, (select relname from pg_class where oid = i.indrelid) from pg_index i"
        index_of = dict(db.execute(f"{owners} join pg_class c on c.oid = i.indexrelid and {ours} = 'i'").fetchall())
    assert sum(size > BIG for size in sizes.values()) > 10
    seen = watch(crowded, CALLS[name], **SETTINGS.get(name, {}))
    assert len(seen.plans) >= 5
    problems, read = set(), set()
    # No trace of a policy: neither its functions nor a filter that would have to come first.
    policy = "_visible_users|_bound_projects|_own_clearance|One-Time Filter.{1,40}current_user"
    assert not re.search(policy, json.dumps(seen.plans))
    for statement, node in seen.scans():
        relation = node.get("Relation Name") or index_of.get(node["Index Name"], "")
        table, _, of_part = relation.rpartition("_p")
        if table not in tables:  # a registry or the buffer: small, or only written to
            continue
        read.add(table)
        if not re.fullmatch(rf"{part}(_y\d{{4}}m\d\d)?", of_part):
            problems.add(f"{relation}, of another part: {statement}")
        if node["Node Type"] == "Seq Scan" and sizes[relation] > BIG:
            problems.add(f"{relation} from end to end, {sizes[relation]:.0f} rows: {statement}")
        is_index = "Index Name" in node and node["Node Type"] != "Bitmap Heap Scan"
        if is_index and "user_id" not in node.get("Index Cond", ""):
            problems.add(f"{node['Index Name']} without the user: {statement}")
    assert sorted(problems) == []
    if name.startswith(("compile", "context", "explain")):
        unread = {"search_tail"} if "as of" in name else {"embeddings"} if "words" in name else set()
        assert ARMS - read <= unread
    assert ("packed_signs" in read) == ("signs" in name)


@pytest.mark.parametrize("name", MEASURED)
def test_other_users_cost_a_compile_nothing(crowded: str, name: str) -> None:
    (locks, pages), (locks_alone, pages_alone) = cost(crowded, CALLS[name]), ALONE[name]
    # Tables and indexes of one part, and the tables' parents; from PostgreSQL 16 on the planner opens the parents' indexes, too.
    with connect(crowded) as db:
        most = 101 if db.info.server_version < 160000 else 140  # three of them ask what later turns changed
    assert locks == locks_alone <= most
    assert pages <= pages_alone * 1.5, (pages, pages_alone)  # sixteen times the rows: some indexes are a level deeper
    # A user of some 500 items: all vectors, a few words, what is shown.
    assert pages <= 1200


def cost(dsn: str, query: str) -> tuple[int, int]:
    """Relations locked by a call in a fresh backend, and pages it touches once that has warmed up."""
    with psycopg.connect(dsn) as fresh:
        # Of a few rows all are read rather than the index: that would say nothing of many.
        fresh.execute("set enable_seqscan = off")
        fresh.execute(query, {"vector": VECTOR})
        fresh.commit()
        fresh.execute(query, {"vector": VECTOR})
        ours = "pid = pg_backend_pid() and locktype = 'relation' and relation >= 16384"
        (locked,) = fresh.execute(f"select count(*) from pg_locks where {ours}").fetchone()
        explain = f"explain (analyze, buffers, timing off, format json) {query}"
        for _ in range(3):
            fresh.rollback()
            [plan] = fresh.execute(explain, {"vector": VECTOR}).fetchone()[0]
        fresh.rollback()
    return locked, plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]


@pytest.mark.parametrize("name", MEASURED)
def test_months_kept_cost_a_compile_nothing(crowded: str, name: str) -> None:
    cost(crowded, CALLS[name])  # the first ones of a database read some pages more
    few = cost(crowded, CALLS[name])
    with connect(crowded) as db:
        part = db.execute("select memoir.part_of('alice')").fetchone()[0]
        for month in range(24):
            first = f"{2023 + month // 12}-{month % 12 + 1:02}-01"
            db.execute("select _memoir.make_leaf('conversation_history', %s, %s)", [part, first])
    many = cost(crowded, CALLS[name])
    assert few[0] == many[0]
    assert abs(few[1] - many[1]) <= few[1] * 0.02, (few, many)


@pytest.mark.acceptance
def test_the_modulus_costs_a_compile_nothing(server_dsn: str) -> None:
    costs = {}
    with database(server_dsn) as small, database(server_dsn) as wide:
        assert apply(small, 2) == apply(wide, 8) == ""
        for dsn in (small, wide):
            add_python(dsn)
            with connect(dsn) as db:
                db.execute("select memoir.set_clock('2026-01-10T00:00:00Z')")
                modulus = db.execute("select modulus from _memoir.installation").fetchone()[0]
                leaves = "select _memoir.make_leaf(t, p) from unnest(%s::text[]) t, generate_series(0, %s - 1) p"
                db.execute(leaves, [[*sorted(ARMS), "users", "session_counters", "kept_recalls"], modulus])
                fill(db, 48, 10)
                db.execute("analyze")
            costs[modulus] = {name: cost(dsn, CALLS[name]) for name in MEASURED}
    two, eight = ({name: locked for name, (locked, _) in costs[modulus].items()} for modulus in (2, 8))
    assert two == eight
    for name, (_, pages) in costs[2].items():
        assert abs(pages - costs[8][name][1]) <= pages * 0.05, (name, costs)
