"""Row security: what a login that was granted a table, a partition or a view sees and writes. Generated from the catalogue."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.types.json import Jsonb
from routines import MESSAGES, code
from rows import columns, plant, tables_with_users
from servers import PGBIN, complete, connect, database, roles, unique, user_of

NO_RIGHT = "42501"
# Tables without a user's rows, by what they hold: registries, settings, and what maintenance says of itself.
NOBODYS = {
    "archives",
    "embedding_models",
    "erase_queue",
    "installation",
    "job_cursors",
    "job_leases",
    "job_runs",
    "models",
    "partitioned_tables",
    "ranking_profiles",
    "schedules",
    "schema_migrations",
    "setting_definitions",
    "settings",
    "settings_merged",
}
# Of logins and applications rather than of users.
OTHERS = {"logins", "login_users", "system_prompts"}


@dataclass
class Rows:
    dsn: str
    logins: dict[str, str]
    users: dict[str, str]  # name: id
    db: psycopg.Connection  # a superuser's, who becomes all the others

    @contextmanager
    def granted(self, login: str, relation: str, rights: str = "all") -> Iterator[psycopg.Connection]:
        """A connection that is this login, which has been granted the relation; undone afterwards."""
        db = self.db
        with db.transaction(force_rollback=True):
            if login in self.logins:
                db.execute(f"grant {rights} on {relation} to {self.logins[login]}")
                db.execute(f"grant usage on schema memoir, _memoir to {self.logins[login]}")
                db.execute(f"set local session authorization {self.logins[login]}")
            else:
                db.execute(f"set local role {login}")
            yield db

    def seen(self, login: str, relation: str, column: str = "user_id") -> set[str]:
        """Of whom there are rows to see; other users than ours by their id."""
        names = {uuid: name for name, uuid in self.users.items()}
        with self.granted(login, relation) as db:
            return {
                names.get(uuid, uuid)
                for (uuid,) in db.execute(f"select distinct {column}::text from {relation}")
                if uuid
            }


@pytest.fixture(scope="module")
def rows(server_dsn: str) -> Iterator[Rows]:
    """Ann and Bob have a row in every table, Ann also in project red; Eve lives in another namespace."""
    with database(server_dsn) as dsn:
        complete(dsn, 2)
        with (
            roles(
                dsn,
                ann="login in role memoir_tenant",
                bob="login in role memoir_tenant",
                red="login in role memoir_tenant",
                normal="login in role memoir_tenant",
                app="login in role memoir_app",
                reader="login in role memoir_reader",
                elsewhere="login in role memoir_app",
                admin="login in role memoir_admin",
                jobs="login in role memoir_jobs",
                stranger="login",
                unbound="login in role memoir_tenant",
            ) as logins,
            connect(dsn) as db,
        ):
            bind = "select memoir.bind_login(%s, %s, %s, %s, p_clearance => %s, p_namespace => %s)"
            for login, users, projects, clearance, namespace in (
                ("ann", ["ann"], None, "private", "default"),
                ("bob", ["bob"], None, "private", "default"),
                ("red", ["ann"], ["red"], "private", "default"),
                ("normal", ["ann"], None, "normal", "default"),
                ("elsewhere", None, None, "private", "elsewhere"),
            ):
                db.execute(bind, [logins[login], users, "agent", projects, clearance, namespace])
            with connect(user_of(dsn, logins["elsewhere"])) as elsewhere:
                elsewhere.execute("select memoir.persist_turn('eve', 's', %s)", [Jsonb(MESSAGES)])
            for user in ("ann", "bob"):
                db.execute("select memoir.persist_turn(%s, 's', %s)", [user, Jsonb(MESSAGES)])
            users = {name: str(uuid) for name, uuid in db.execute("select external_id, user_id from _memoir.users")}
            sessions = {
                name: db.execute("select session_id from _memoir.sessions where user_id = %s", [uuid]).fetchone()[0]
                for name, uuid in users.items()
            }
            for table in tables_with_users(db):
                for user in ("ann", "bob", "eve"):
                    if not db.execute(
                        f"select exists (select from _memoir.{table} where user_id = %s)", [users[user]]
                    ).fetchone()[0]:
                        if table == "login_users":
                            continue
                        given = {"user_id": users[user], "session_id": sessions[user]}
                        db.execute("select _memoir.ensure_month(%s, memoir.now())", [users[user]])
                        plant(db, table, **given)
            # Of Ann: things of two projects, and one that is private.
            db.execute("select memoir.persist_turn('ann', 'crimson', %s)", [Jsonb(MESSAGES)])
            db.execute("select memoir.open_session('ann', 'crimson', p_project => 'red')")
            db.execute(
                "select memoir.remember('ann', 'red fact', p_project => 'red'), memoir.remember('ann', 'blue fact', p_project => 'blue'), "
                "memoir.remember('ann', 'private fact', p_sensitivity => 'private'), memoir.remember('ann', 'secret fact', p_sensitivity => 'secret')"
            )
            yield Rows(dsn, logins, users, db)


# What is secured ------------------------------------------------------------------------------------------------------


def test_every_table_is_secured_or_nobodys(rows: Rows) -> None:
    """Parents, intermediate partitions and leaves, unlogged ones and those made just now; a new table must be one or the other."""
    with connect(rows.dsn) as db:
        db.execute("select memoir.set_clock('2033-03-03T00:00:00Z')")
        db.execute("select memoir.persist_turn('ann', 's', %s)", [Jsonb(MESSAGES)])
        db.execute("select memoir.set_clock(null)")
        found = db.execute("""
            select c.relname, coalesce((select relname from pg_class where oid = pg_partition_root(c.oid)), c.relname), c.relrowsecurity, c.relforcerowsecurity, c.relpersistence,
              c.relkind::text, array(select polname::text from pg_policy where polrelid = c.oid order by 1)
            from pg_class c where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p')""").fetchall()
        tables = {root for _, root, *_ in found}
        assert tables >= NOBODYS | OTHERS | set(tables_with_users(db))
        assert tables - NOBODYS == OTHERS | set(tables_with_users(db))
        bare = [
            name
            for name, root, enabled, forced, _, _, policies in found
            if root not in NOBODYS and (not enabled or not forced or policies != ["every_row", "own_rows"])
        ]
        assert bare == []
        assert any("_y2033m03" in name for name, *_ in found) and {"u"} <= {
            persistence for *_, persistence, _, _ in found
        }
        assert any(kind == "p" and name != root for name, root, _, _, _, kind, _ in found)
        # The same rule on a leaf as on its parent, and to the owner every row, by a constant.
        rules = db.execute("""select coalesce((select relname from pg_class where oid = pg_partition_root(polrelid)), polrelid::regclass::text), polname,
                                count(distinct pg_get_expr(polqual, polrelid)), min(pg_get_expr(polqual, polrelid)), count(distinct polroles)
                              from pg_policy where polrelid in (select oid from pg_class where relnamespace = '_memoir'::regnamespace) group by 1, 2""").fetchall()
        assert [rule for rule in rules if rule[2] != 1 or rule[4] != 1] == []
        assert {text for _, name, _, text, _ in rules if name == "every_row"} == {"true"}


def test_views_answer_for_their_reader(rows: Rows) -> None:
    """A view of ours over users' rows is asked as its reader, not as its owner, whom every policy lets pass."""
    with connect(rows.dsn) as db:
        views = db.execute("""
            select c.relname from pg_class c where c.relnamespace = 'memoir'::regnamespace and c.relkind in ('v', 'm')
              and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')""").fetchall()
    seen: list[str] = []
    for (view,) in views:
        with connect(rows.dsn) as db:
            user = [name for name, kind, _, _ in columns(db, view) if kind == "uuid" and name == "user_id"]
        if user:
            seen.append(view)
            try:
                assert rows.seen("ann", f"memoir.{view}") <= {"ann"} and rows.seen("elsewhere", f"memoir.{view}") <= {
                    "eve"
                }, view
                assert rows.seen("red", f"memoir.{view}") == rows.seen("unbound", f"memoir.{view}") == set(), view
                assert code(lambda: rows.seen("stranger", f"memoir.{view}")) == NO_RIGHT, view
            except psycopg.errors.InsufficientPrivilege:
                pass  # security_invoker, and the reader lacks the tables beneath
            assert rows.seen("admin", f"memoir.{view}") >= {"ann", "bob", "eve"} or view == "dead_letters", view
    assert len(seen) > 3


# Reading --------------------------------------------------------------------------------------------------------------


def relations(db: psycopg.Connection, table: str) -> list[str]:
    """The table, and of each level below what holds the rows of Ann or Bob."""
    return [
        name
        for (name,) in db.execute(
            """
        select format('_memoir.%%I', relname) from pg_partition_tree(('_memoir.' || %s)::regclass) join pg_class c on c.oid = relid where level < 2 or not isleaf
          or (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from %%s', relid::regclass), false, true, '')))[1]::text <> '0'""",
            [table],
        )
    ] or [f"_memoir.{table}"]


@pytest.mark.acceptance
def test_a_granted_table_shows_own_rows(rows: Rows) -> None:
    with connect(rows.dsn) as db:
        tables = {table: relations(db, table) for table in tables_with_users(db) if table not in OTHERS}
    assert sum(len(names) for names in tables.values()) > 100
    for table, names in tables.items():
        for name in names:
            with rows.granted("ann", f"_memoir.{table}", "references") as db:
                assert code(lambda: db.execute(f"select * from {name} limit 1")) == NO_RIGHT, name
        assert [rows.seen(login, f"_memoir.{table}") for login in ("ann", "bob", "stranger", "unbound")] == [
            {"ann"},
            {"bob"},
            set(),
            set(),
        ], table
        for login in ("app", "reader"):
            assert rows.seen(login, f"_memoir.{table}") == {"ann", "bob"}, table
        assert rows.seen("elsewhere", f"_memoir.{table}") == {"eve"}, table
        for login in ("admin", "jobs", "memoir_owner"):
            assert rows.seen(login, f"_memoir.{table}") >= {"ann", "bob", "eve"}, (table, login)
        # Read by their own names, the partitions together show the same, and each of them no more.
        for login, theirs in (
            ("ann", {"ann"}),
            ("bob", {"bob"}),
            ("stranger", set()),
            ("memoir_owner", {"ann", "bob", "eve"}),
        ):
            parts = [rows.seen(login, name) for name in names if name != f"_memoir.{table}"]
            assert all(part <= theirs for part in parts), (table, login)
            assert not parts or set().union(*parts) == theirs, (table, login)


def test_projects_and_clearance_bound_rows(rows: Rows) -> None:
    def read(login: str, query: str, table: str) -> set:
        with rows.granted(login, f"_memoir.{table}", "select") as db:
            return {value for (value,) in db.execute(query)}

    contents = "select content from _memoir.memory_store where content ~ ' fact$'"
    assert read("ann", contents, "memory_store") == {"red fact", "blue fact", "private fact"}
    assert read("red", contents, "memory_store") == {"red fact"}
    assert read("normal", contents, "memory_store") == {"red fact", "blue fact"}
    assert read("admin", contents, "memory_store") >= {"red fact", "secret fact"}
    for table in ("sessions", "session_counters", "conversation_history", "search_items"):
        assert read("ann", f"select session_id from _memoir.{table} where session_id is not null", table) >= read(
            "red", f"select session_id from _memoir.{table} where session_id is not null", table
        )
        with connect(rows.dsn) as db:
            [crimson] = db.execute("select session_id from _memoir.sessions where external_id = 'crimson'").fetchone()
        assert read("red", f"select session_id from _memoir.{table} where session_id is not null", table) == {
            crimson
        }, table
    # What can't be told to be of a project is not shown to who is bound to one.
    with connect(rows.dsn) as db:
        for table in set(tables_with_users(db)) - OTHERS:
            names = {name for name, *_ in columns(db, table)}
            if not names & {"project", "session_id"}:
                assert rows.seen("red", f"_memoir.{table}") == set(), table
                assert rows.seen("ann", f"_memoir.{table}") == {"ann"}, table


def test_bindings_and_prompts(rows: Rows) -> None:
    with connect(rows.dsn) as db:
        db.execute("select memoir.open_session('bob', 'prompted', p_system_prompt => 'Bob is a spy.')")
    for table in ("logins", "login_users"):
        assert rows.seen("ann", f"_memoir.{table}", "login") == {rows.logins["ann"]}
        assert len(rows.seen("admin", f"_memoir.{table}", "login")) > 3
    assert rows.seen("ann", "_memoir.system_prompts", "content") == set()
    assert rows.seen("admin", "_memoir.system_prompts", "content") == {"Bob is a spy."}


def test_statistics_and_plans_tell_nothing(rows: Rows) -> None:
    """pg_stats shows sample values, and a function of one's own in the condition sees what comes before the policy."""
    with connect(rows.dsn) as db:
        db.execute("analyze _memoir.memory_store")
    leaked: list[str] = []
    with rows.granted("bob", "_memoir.memory_store", "select") as db:
        db.add_notice_handler(note := lambda notice: leaked.append(notice.message_primary or ""))
        assert db.execute("select count(*) from pg_stats where schemaname = '_memoir'").fetchone() == (0,)
        db.execute(
            """create function pg_temp.look(text) returns boolean language plpgsql cost 0.0000001 as $$ begin raise notice '%', $1; return true; end $$"""
        )
        db.execute("select count(*) from _memoir.memory_store where pg_temp.look(content)")
        db.remove_notice_handler(note)
        db.execute("set local row_security = off")
        assert code(lambda: db.execute("select count(*) from _memoir.memory_store")) == NO_RIGHT
    assert leaked and set(leaked) == {"planted"}


def test_a_view_of_an_operator(rows: Rows) -> None:
    """security_invoker makes a view ask as its reader; without it, a view of a superuser's shows everything to whom it is granted."""
    with connect(rows.dsn) as db:
        db.execute("create schema reports; grant usage on schema reports to public")
        db.execute(
            "create view reports.memories with (security_invoker = true) as select user_id, content from _memoir.memory_store"
        )
    with rows.granted("ann", "reports.memories", "select") as db:
        assert code(lambda: db.execute("select * from reports.memories")) == NO_RIGHT
    with connect(rows.dsn) as db:
        db.execute(f"grant select on _memoir.memory_store to {rows.logins['ann']}")
        assert rows.seen("ann", "reports.memories") == {"ann"}
        db.execute(f"revoke all on _memoir.memory_store from {rows.logins['ann']}")


# Writing --------------------------------------------------------------------------------------------------------------


def test_a_granted_table_takes_own_rows(rows: Rows) -> None:
    with connect(rows.dsn) as db:
        tables = [table for table in tables_with_users(db) if table not in OTHERS]
        needed = {table: [name for name, _, is_needed, _ in columns(db, table) if is_needed] for table in tables}
        sizes = {
            table: dict(db.execute(f"select user_id::text, count(*) from _memoir.{table} group by 1").fetchall())
            for table in tables
        }
    for table in tables:
        with rows.granted("bob", f"_memoir.{table}") as db:
            if table != "conversation_history":  # append-only, whoever asks
                assert (
                    db.execute(f"update _memoir.{table} set user_id = user_id").rowcount
                    == sizes[table][rows.users["bob"]]
                ), table
                with db.transaction(force_rollback=True):
                    assert (
                        code(lambda: db.execute(f"update _memoir.{table} set user_id = '{rows.users['ann']}'"))
                        == NO_RIGHT
                    ), table
                with db.transaction(force_rollback=True):
                    assert db.execute(f"delete from _memoir.{table}").rowcount == sizes[table][rows.users["bob"]], table
            listed = ", ".join(f'"{name}"' for name in needed[table])
            mine = ", ".join(f"'{rows.users['ann']}'" if name == "user_id" else f'"{name}"' for name in needed[table])
            with db.transaction(force_rollback=True):
                assert (
                    code(
                        lambda: db.execute(
                            f"insert into _memoir.{table} ({listed}) select {mine} from _memoir.{table} limit 1"
                        )
                    )
                    == NO_RIGHT
                ), table


# The owner, and who dumps ---------------------------------------------------------------------------------------------


def test_the_owner_loses_no_rows(rows: Rows) -> None:
    """With FORCE and no policy for it, an owner that is no superuser would delete, copy and dump zero rows."""
    with connect(rows.dsn) as db:
        tables = [*tables_with_users(db), "logins"]
        leaves = [name for table in tables for name in relations(db, table) if name != f"_memoir.{table}"]
        for relation in [*(f"_memoir.{table}" for table in tables), *leaves]:
            [count] = db.execute(f"select count(*) from {relation}").fetchone()
            with rows.granted("memoir_owner", relation) as owner:
                assert owner.execute(f"select count(*) from {relation}").fetchone() == (count,)
                with owner.cursor().copy(f"copy (select * from {relation}) to stdout") as out:
                    assert sum(bytes(block).count(b"\n") for block in out) == count, relation
                if "conversation_history" not in relation:
                    assert owner.execute(f"delete from {relation}").rowcount == count, relation


def test_dumps(rows: Rows, tmp_path) -> None:
    """A superuser's is whole; one of a member of the owner says that it isn't allowed, unless asked for what the policies show: all."""
    with roles(rows.dsn, keeper="login in role memoir_owner") as names:
        as_keeper = user_of(rows.dsn, names["keeper"])
        refused = subprocess.run(
            [PGBIN / "pg_dump", "-n", "memoir", "-n", "_memoir", as_keeper], capture_output=True, text=True, check=False
        )
        assert refused.returncode != 0 and "row-level security" in refused.stderr

        def data(text: str) -> list[str]:
            return sorted(line for line in text.splitlines() if "INSERT INTO" in line)

        whole = subprocess.run(
            [PGBIN / "pg_dump", "-n", "memoir", "-n", "_memoir", "--data-only", "--inserts", rows.dsn],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        shown = subprocess.run(
            [
                PGBIN / "pg_dump",
                "-n",
                "memoir",
                "-n",
                "_memoir",
                "--data-only",
                "--inserts",
                "--enable-row-security",
                as_keeper,
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert len(data(whole)) > 100 and data(whole) == data(shown)


def test_a_login_made_anew_is_not_bound(rows: Rows) -> None:
    with connect(rows.dsn) as db:
        name = unique("t_again")
        db.execute(f"create role {name} login in role memoir_tenant")
        db.execute("select memoir.bind_login(%s, array['ann'])", [name])
        db.execute(f"drop role {name}")
        db.execute("select memoir.unbind_login(%s)", [name])
        db.execute(f"create role {name} login in role memoir_tenant")
        try:
            with connect(user_of(rows.dsn, name)) as again:
                assert code(lambda: again.execute("select memoir.recall('ann', 'fact')")) == "PM001"
            assert code(lambda: db.execute("select memoir.unbind_login(%s)", [name])) == "PM014"
        finally:
            db.execute(f"drop role {name}")
