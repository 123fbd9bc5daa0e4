"""A login that was granted a table, a partition or a view sees and writes its own users' rows. Generated from the catalogue."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import Db, call, one, remember, store
from routines import MESSAGES, NO_RIGHT, World, code, world_of
from rows import columns, plant, tables_with_users
from servers import PGBIN, roles, user_of

# Tables without a user's rows, by what they hold: registries, settings, and what maintenance says of itself.
UNOWNED = set(
    """archives embedding_models erase_queue installation job_cursors job_leases job_runs models partitioned_tables
    ranking_profiles schedules schema_migrations setting_definitions settings settings_merged""".split()
)
# Of logins and applications rather than of users.
OTHERS = {"logins", "login_users", "system_prompts"}
OWN = {"ann": {"ann"}, "bob": {"bob"}, "elsewhere": {"eve"}, "stranger": set(), "unbound": set()}
SERVICES = {"app": {"ann", "bob"}, "reader": {"ann", "bob"}}
ALL = {"ann", "bob", "eve"}


class Rows:
    """Logins, the ids of the users, and a superuser's connection that becomes the logins."""

    def __init__(self, world: World) -> None:
        self.world, self.db = world, world.db
        self.users = dict(world.db.execute("select user_id::text, external_id from _memoir.users").fetchall())
        self.ids = {name: user for user, name in self.users.items()}
        self.tables = [table for table in tables_with_users(world.db) if table not in OTHERS]

    @contextmanager
    def grant(self, login: str, relation: str, rights: str = "all") -> Iterator[Db]:
        """The connection as that login, which has been granted the relation; undone afterwards."""
        with self.db.transaction(force_rollback=True):
            if name := self.world.logins.get(login):
                self.db.execute(f"grant {rights} on {relation} to {name}")
                self.db.execute(f"grant usage on schema memoir, _memoir to {name}")
                self.db.execute(f"set local session authorization {name}")
            else:
                self.db.execute(f"set local role {login}")
            yield self.db

    def find_users(self, login: str, relation: str, column: str = "user_id", where: str = "") -> set[str]:
        """The users whose rows are seen, by name; other values as they are."""
        with self.grant(login, relation) as db:
            found = db.execute(f"select distinct {column}::text from {relation} {where}").fetchall()
        return {self.users.get(value, value) for (value,) in found if value}


@pytest.fixture(scope="module")
def rows(memoir_dsn: str) -> Iterator[Rows]:
    """Ann and Bob have a row in every table, Ann also in two projects; Eve lives in another namespace."""
    ann = {"role": "tenant", "users": ["ann"], "actor": "agent"}
    with world_of(
        memoir_dsn,
        ann=ann,
        bob=ann | {"users": ["bob"]},
        red=ann | {"projects": ["red"]},
        normal=ann | {"clearance": "normal"},
        elsewhere={"role": "app", "namespace": "elsewhere"},
        unbound="tenant",
        stranger="",
        **{role: role for role in ("app", "reader", "admin", "jobs")},
    ) as world:
        db = world.db
        for login, user in (("elsewhere", "eve"), ("app", "ann"), ("app", "bob")):
            store(world.connection(login), user, "s", MESSAGES)
        rows = Rows(world)
        for table in tables_with_users(db):
            for user in rows.users if table != "login_users" else ():
                if not one(db, f"select exists (select from _memoir.{table} where user_id = %s)", user):
                    session = one(db, "select session_id from _memoir.sessions where user_id = %s", user)
                    db.execute("select _memoir.ensure_month(%s, memoir.now())", [user])
                    plant(db, table, user_id=user, session_id=session)
        store(db, "ann", "crimson", MESSAGES)
        call(db, "open_session", "ann", "crimson", project="red", system_prompt="Ann is a spy.")
        for project in ("red", "blue"):
            remember(db, "ann", f"{project} fact", project=project)
        for sensitivity in ("private", "secret"):
            remember(db, "ann", f"{sensitivity} fact", sensitivity=sensitivity)
        yield rows


def test_every_table_is_secured_or_unowned(rows: Rows) -> None:
    """Parents, intermediate partitions and leaves, those made just now too. A new table must be one or the other."""
    call(rows.db, "set_clock", "2033-03-03T00:00:00Z")
    store(rows.db, "ann", "s", MESSAGES)
    call(rows.db, "set_clock", None)
    found = rows.db.execute("""
        select c.relname, coalesce((select relname from pg_class where oid = pg_partition_root(c.oid)), c.relname),
          c.relrowsecurity and c.relforcerowsecurity, array(select polname::text from pg_policy where polrelid = c.oid order by 1)
        from pg_class c where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p')""").fetchall()
    assert {root for _, root, *_ in found} == UNOWNED | OTHERS | set(rows.tables)
    secured = [row for row in found if row[1] not in UNOWNED]
    assert [name for name, _, forced, policies in secured if not forced or policies != ["every_row", "own_rows"]] == []
    assert any("_y2033m03" in name for name, *_ in found)
    # The same rule on a leaf as on its parent, and to the owner every row, by a constant.
    rules = rows.db.execute("""
        select coalesce((select relname from pg_class where oid = pg_partition_root(polrelid)), polrelid::regclass::text),
          polname, count(distinct pg_get_expr(polqual, polrelid)) + count(distinct polroles), min(pg_get_expr(polqual, polrelid))
        from pg_policy join pg_class c on c.oid = polrelid and c.relnamespace = '_memoir'::regnamespace group by 1, 2""")
    assert {(n, text if name == "every_row" else "") for _, name, n, text in rules} == {(2, "true"), (2, "")}


def test_views_answer_for_their_reader(rows: Rows) -> None:
    """A view over users' rows is asked as its reader, not as its owner, whom every policy lets pass."""
    views = """select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id'
        where c.relnamespace = 'memoir'::regnamespace and c.relkind in ('v', 'm') and c.relname <> 'dead_letters'"""
    names = [f"memoir.{name}" for (name,) in rows.db.execute(views)]
    assert len(names) >= 3
    for view in names:
        for login, own in OWN.items():
            try:
                assert rows.find_users(login, view) <= own, view
            except psycopg.errors.InsufficientPrivilege:
                pass  # security_invoker, and the reader has no right to the tables beneath
        assert rows.find_users("admin", view) >= ALL, view


def relations(db: Db, table: str) -> list[str]:
    """The table's partitions: those of intermediate levels, and leaves with rows."""
    query = """select format('_memoir.%%I', relname) from pg_partition_tree(('_memoir.' || %s)::regclass)
        join pg_class c on c.oid = relid where level > 0 and (not isleaf or (xpath('/row/n/text()',
        query_to_xml(format('select count(*) as n from %%s', relid::regclass), false, true, '')))[1]::text <> '0')"""
    return [name for (name,) in db.execute(query, [table])]


@pytest.mark.acceptance
def test_a_granted_table_shows_own_rows(rows: Rows) -> None:
    """Read by their own names, the partitions together show the same, and each of them no more."""
    count = 0
    for table in rows.tables:
        parent, parts = f"_memoir.{table}", relations(rows.db, table)
        count += len(parts)
        for name in (parent, *parts):
            with rows.grant("ann", parent, "references") as db:
                assert code(lambda: db.execute(f"select * from {name} limit 1")) == NO_RIGHT, name
        for login, own in (OWN | SERVICES).items():
            assert rows.find_users(login, parent) == own, (table, login)
        for login in ("admin", "jobs", "memoir_owner"):
            assert rows.find_users(login, parent) >= ALL, (table, login)
        for login, own in {"ann": OWN["ann"], "stranger": set(), "memoir_owner": ALL}.items():
            seen = [rows.find_users(login, name) for name in parts]
            assert all(part <= own for part in seen) and (not seen or set().union(*seen) == own), (table, login)
    assert count > 40


def test_projects_and_clearance_bound_rows(rows: Rows) -> None:
    def read(login: str) -> set[str]:
        return rows.find_users(login, "_memoir.memory_store", "content", "where content ~ ' fact$'")

    assert read("ann") == {"red fact", "blue fact", "private fact"}
    assert (read("red"), read("normal")) == ({"red fact"}, {"red fact", "blue fact"})
    assert read("admin") >= {"red fact", "secret fact"}
    crimson = one(rows.db, "select session_id::text from _memoir.sessions where external_id = 'crimson'")
    for table in rows.tables:
        names = {name for name, *_ in columns(rows.db, table)}
        if table in ("sessions", "session_counters", "conversation_history", "search_items"):
            assert rows.find_users("red", f"_memoir.{table}", "session_id") == {crimson}, table
        elif not names & {"project", "session_id"}:  # can't be told to be of a project
            assert rows.find_users("red", f"_memoir.{table}") == set(), table
    for table in ("logins", "login_users"):
        assert rows.find_users("ann", f"_memoir.{table}", "login") == {rows.world.logins["ann"]}
        assert len(rows.find_users("admin", f"_memoir.{table}", "login")) > 3
    assert rows.find_users("ann", "_memoir.system_prompts", "content") == set()
    assert rows.find_users("admin", "_memoir.system_prompts", "content") == {"Ann is a spy."}


def test_statistics_and_plans_show_no_rows(rows: Rows) -> None:
    """pg_stats shows sample values, and a function of one's own in the condition sees what comes before the policy."""
    rows.db.execute("analyze _memoir.memory_store")
    leaked: list[str] = []
    look = """create function pg_temp.look(text) returns boolean language plpgsql cost 0.0000001
        as $$ begin raise notice '%', $1; return true; end $$"""
    with rows.grant("bob", "_memoir.memory_store", "select") as db:
        db.add_notice_handler(note := lambda notice: leaked.append(notice.message_primary or ""))
        assert one(db, "select count(*) from pg_stats where schemaname = '_memoir'") == 0
        db.execute(look)
        db.execute("select count(*) from _memoir.memory_store where pg_temp.look(content)")
        db.remove_notice_handler(note)
        db.execute("set local row_security = off")
        assert code(lambda: db.execute("select count(*) from _memoir.memory_store")) == NO_RIGHT
    assert leaked and set(leaked) == {"planted"}


def test_a_granted_table_takes_own_rows(rows: Rows) -> None:
    def try_statement(statement: str) -> str | None:
        def run() -> None:
            with rows.db.transaction(force_rollback=True):
                rows.db.execute(statement)

        return code(run)

    for table in rows.tables:
        name = f"_memoir.{table}"
        size = one(rows.db, f"select count(*) from {name} where user_id = %s", rows.ids["bob"])
        needed = [column for column, _, is_needed, _ in columns(rows.db, table) if is_needed]
        listed = ", ".join(f'"{column}"' for column in needed)
        mine = listed.replace('"user_id"', f"'{rows.ids['ann']}'")
        with rows.grant("bob", name) as db:
            if table != "conversation_history":  # append-only, whoever asks
                assert db.execute(f"update {name} set user_id = user_id").rowcount == size, table
                assert try_statement(f"update {name} set user_id = '{rows.ids['ann']}'") == NO_RIGHT, table
                with db.transaction(force_rollback=True):
                    assert db.execute(f"delete from {name}").rowcount == size, table
            assert try_statement(f"insert into {name} ({listed}) select {mine} from {name} limit 1") == NO_RIGHT, table


def test_the_owner_loses_no_rows(rows: Rows) -> None:
    """With FORCE and no policy for it, an owner that is no superuser would delete, copy and dump zero rows."""
    tables = [*rows.tables, *OTHERS]
    leaves = [name for table in tables for name in relations(rows.db, table)]
    for relation in [*(f"_memoir.{table}" for table in tables), *leaves]:
        count = one(rows.db, f"select count(*) from {relation}")
        with rows.grant("memoir_owner", relation) as owner:
            with owner.cursor().copy(f"copy (select * from {relation}) to stdout") as out:
                assert sum(bytes(block).count(b"\n") for block in out) == count, relation
            if "conversation_history" not in relation:
                assert owner.execute(f"delete from {relation}").rowcount == count, relation


def test_dumps_are_whole_or_refused(rows: Rows, tmp_path: Path) -> None:
    """A member of the owner is told that a dump isn't allowed, unless it asks for what the policies show: all."""

    def dump(dsn: str, *options: str) -> Any:
        words = [PGBIN / "pg_dump", "-n", "memoir", "-n", "_memoir", "--data-only", "--inserts", *options, dsn]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return sorted(line for line in done.stdout.splitlines() if "INSERT INTO" in line) or done.stderr

    with roles(rows.world.dsn, keeper="login in role memoir_owner") as names:
        as_keeper = user_of(rows.world.dsn, names["keeper"])
        assert "row-level security" in dump(as_keeper)
        whole = dump(rows.world.dsn)
        assert len(whole) > 100 and whole == dump(as_keeper, "--enable-row-security")
