"""A user, a session or a turn is erased with all that was derived from it, out of the files too, and the rest stays."""

import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import Db, call, embed_waiting, one, persist, raises, recalled, remember, remembered, run_job, table
from internals import user_id
from loops import step
from parallel import beside, until
from psycopg.types.json import Jsonb
from request_rules import unpaired
from routines import code, world_of
from rows import plant, tables_with_users
from servers import connect, unique

VECTOR = [0.1] * 384
STEP, SEEN = step(1, "look", {"at": "the pier"}, "It is moored")


def compile_list(db: Db, user: str, session: str, query: str | None = "And now?") -> list[dict[str, Any]]:
    return list(call(db, "compile_context", user, session, query))


def find_tables_with(db: Db, token: str) -> list[str]:
    """Tables with a row that holds it, as text, in bytes or as a word."""
    tables = """select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'p')
        and not relispartition order by 1"""
    holds = """select exists (select from _memoir.{} t where strpos(lower(t::text), lower(%s)) > 0
        or strpos(t::text, encode(%s, 'hex')) > 0)"""
    names = [name for (name,) in db.execute(tables).fetchall()]
    return [name for name in names if one(db, holds.format(name), token, token.encode())]


def tables_of(db: Db, user: Any) -> list[str]:
    """Tables with a row of the user's."""
    names = tables_with_users(db)
    return [t for t in names if one(db, f"select exists (select from _memoir.{t} where user_id = %s)", user)]


def states_of(db: Db, user: str) -> dict[str, str]:
    """{memory: state}."""
    return dict(table(db, "list_memories", user, states=[], columns="memory_id::text, state", limit=1000))


def check_list(messages: list[dict[str, Any]]) -> None:
    """Starts with the user, ends with the user or a tool's result, every call has its results behind it."""
    shown = [m for m in messages if m["role"] != "system"]
    assert shown and shown[0]["role"] == "user" and shown[-1]["role"] in ("user", "tool")
    assert unpaired(shown) == []


def test_a_user_is_erased_from_every_table(db: Db, user: str) -> None:
    """A row of every table, so that a new table is covered the day it appears. The audit names neither user nor content."""
    other = unique("bystander")
    db.execute("create role t_erased login in role memoir_tenant")
    call(db, "bind_login", "t_erased", ["somebody"])
    ids, tables = [user_id(db, user), user_id(db, other)], tables_with_users(db)
    for owner in ids:
        for name in tables:
            given = {"local_to": owner, "scope": "local", "login": "t_erased"}
            plant(db, name, user_id=owner, **given)
    before = {name: 1 for name in tables if name != "user_locks"}  # an erase makes such a row itself, so it counts none
    assert call(db, "erase_user", user) == {"erased": "user", "rows": before, "total": len(before)}
    assert tables_of(db, ids[0]) == [] and tables_of(db, ids[1]) == tables
    assert find_tables_with(db, str(ids[0])) == []
    kept = "select user_id, detail from _memoir.audit_log where action = 'erase' order by audit_id desc limit 1"
    assert db.execute(kept).fetchone() == (None, {"what": "user", "rows": before})
    assert call(db, "erase_user", user) == {"erased": "user", "rows": {}, "total": 0}
    call(db, "erase_user", other)
    call(db, "unbind_login", "t_erased")
    db.execute("drop role t_erased")


DERIVED = """
insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, link)
  values (%(user)s, 'memory', %(merged)s, 'turn', %(turn)s, 'merged'),
    (%(user)s, 'memory', %(second)s, 'memory', %(memory)s, 'origin');
insert into _memoir.memory_renditions
  values (%(user)s, %(memory)s, 2, %(mark)s, 1, 'estimate', '[]', '[]', '[]', '[]', 'test', now());
insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at)
  values (%(user)s, %(session)s, gen_random_uuid(), 0, 3, %(mark)s, 'test', now());
update _memoir.sessions set summary_text = %(mark)s, summary_through = 3
  where user_id = %(user)s and session_id = %(session)s;
insert into _memoir.profiles values (%(user)s, 1, %(mark)s, '{}', 'test', now());
update _memoir.users set profile_version = 1 where user_id = %(user)s;
insert into _memoir.turn_pins values (%(user)s, %(session)s, 2, 2, null, %(mark)s, 'person', 'test', now());
insert into _memoir.memory_judgements values (%(user)s, gen_random_uuid(), now(), %(unrelated)s, %(memory)s, 'value',
  'compatible', 0.1, 0.2, 'none', null, %(mark)s);
insert into _memoir.work_items (kind, user_id, run_after, created_at, payload, last_error) values ('extract', %(user)s,
  now() + interval '1 day', now(), jsonb_build_object('turns', jsonb_build_array(%(turn)s::text)), %(mark)s)"""


def furnish(db: Db, user: str, mark: str) -> dict[str, Any]:
    """A session whose turn 2 says `mark`, with all that can be derived from it, and things that are not."""
    said = ["Hello there", "Hi", f"I keep a {mark} at the pier", "Noted, at the pier", "Look it up", STEP, SEEN]
    made = persist(db, user, "s", *said, {"role": "assistant", "content": "It is moored there"})
    persist(db, user, "other", "I grow tomatoes", "Noted")
    call(db, "branch_session", user, "s", "b")
    persist(db, user, "b", "In the branch", "Yes")
    here: dict[str, Any] = {"session": "s", "source_turns": [2]}
    slotted = {"tags": [mark], "metadata": {"said": mark}, "slot": "boat", "slot_value": mark}
    stated = {"provenance": "user_stated"}
    ids = {
        "user": user_id(db, user),
        "session": made["session_id"],
        "turn": made["message_ids"][2],
        "mark": mark,
        "memory": remembered(db, user, f"Keeps a {mark}", **here, **slotted),
        "unrelated": remembered(db, user, "Grows tomatoes", session="other", source_turns=[0]),
        "merged": remembered(db, user, "Says hello", session="s", source_turns=[0]),
        "second": remembered(db, user, f"Owner of some {mark}", key=f"second-{mark}"),
        "restated": remembered(db, user, "Has a boat", **here, **stated),
    }
    assert remembered(db, user, "has a BOAT", session="other", source_turns=[0], **stated) == ids["restated"]
    for statement in DERIVED.split(";"):
        db.execute(statement, ids)
    call(db, "capture_call", user, "s", mark.encode(), events=[mark.encode()])
    call(db, "set_working_memory", user, "other", "n", "water the tomatoes")
    for words in (f"Where is the {mark}?", f"Where is the {mark} now?"):
        embed_waiting(db, VECTOR)
        for session in ("other", "b"):
            compile_list(db, user, session, words)
        db.execute("call memoir.run_job('merge')")
        db.execute("call memoir.run_job('flush')")
    compile_list(db, user, "other", f"Where is the {mark}, then?")
    embed_waiting(db, VECTOR)
    return ids


SPREAD = set(
    """conversation_history memory_store memory_renditions compactions sessions profiles work_items api_calls stream_events
    kept_recalls""".split()
)


def test_a_turn_is_erased_with_all_derived_from_it(db: Db, user: str) -> None:
    """Ids of memories are left, in state erased. What something else says too, or merely resembled it, stays."""
    mark = unique("catamaran").replace("_", "")
    ids = furnish(db, user, mark)
    assert set(find_tables_with(db, mark)) >= SPREAD
    answer = call(db, "erase_turn", user, "b", 2)  # as the branch sees it
    assert answer["turns"] == [2]
    assert (answer["rows"]["conversation_history"], answer["rows"]["memory_store"]) == (1, 2)
    assert find_tables_with(db, mark) == []
    erased = {ids[name] for name in ("memory", "second")}
    names = ("memory", "second", "merged", "unrelated", "restated")
    assert states_of(db, user) == {ids[n]: "erased" if ids[n] in erased else "active" for n in names}
    for session in ("s", "b", "other"):
        messages = compile_list(db, user, session, "What about the tomatoes, the pier and the boat?")
        check_list(messages)
        assert mark not in str(messages)
    assert "moored" in str(compile_list(db, user, "s")) and "tomatoes" in str(recalled(db, user, "tomatoes"))
    with pytest.raises(psycopg.Error, match="turn 2 does not exist"):
        call(db, "erase_turn", user, "s", 2)
    # The words of the turn that followed are embedded anew, without those of the erased one.
    assert "Noted, at the pier" in [text for (text,) in table(db, "claim_embeddings", 1000, columns="text")]
    # The counts of the search structures agree.
    assert one(
        db,
        """select (c.items, c.total_words) = (select count(*), sum(word_count) from _memoir.search_items i
            where i.user_id = c.user_id) from _memoir.user_counters c where c.user_id = %s""",
        ids["user"],
    )
    dangling = """select count(*) from _memoir.search_postings p, unnest(p.postings) i where user_id = %s and not exists
        (select from _memoir.search_items s where s.user_id = p.user_id and s.item_no = p.first_item + (i >> 8))"""
    assert one(db, dangling, ids["user"]) == 0 and persist(db, user, "s", "More", "Yes")["from_turn"] == 8


@pytest.mark.parametrize("turn", range(8))
def test_any_turn_can_be_erased_and_lists_stay_valid(db: Db, user: str, turn: int) -> None:
    furnish(db, user, unique("mark").replace("_", ""))
    group = [5, 6] if turn in (5, 6) else [turn]
    assert call(db, "erase_turn", user, "s", turn)["turns"] == group
    for session, more in (("s", 0), ("b", 2)):
        check_list(compile_list(db, user, session))
        assert len(table(db, "history", user, session)) == 8 - len(group) + more
    for at in range(9):
        try:
            call(db, "branch_session", user, "s", f"b{at}", at)
            check_list(compile_list(db, user, f"b{at}"))
        except psycopg.Error as error:
            assert error.sqlstate == "PM014" and at == 6
    persist(db, user, "s", "More", "Yes")
    check_list(compile_list(db, user, "s"))


def test_an_open_exchange_without_question_is_over(db: Db, user: str) -> None:
    persist(db, user, "s", "Hello", "Hi", "Look", STEP, SEEN)
    check_list(compile_list(db, user, "s", None))
    call(db, "erase_turn", user, "s", 2)
    with raises("PM022"):
        compile_list(db, user, "s", None)
    check_list(compile_list(db, user, "s"))
    persist(db, user, "open", "Hello")
    persist(db, user, "open", STEP, function="append_messages")
    assert call(db, "erase_turn", user, "open", 1)["turns"] == [1]
    check_list(compile_list(db, user, "open", None))  # the call that waited is gone, the question is still open
    assert persist(db, user, "open", {"role": "assistant", "content": "Well"})["from_turn"] == 2


def test_a_session_is_erased_and_its_branches_stay(db: Db, user: str) -> None:
    mark = unique("catamaran").replace("_", "")
    ids = furnish(db, user, mark)
    call(db, "set_working_memory", user, "s", "n", mark)
    remembered(db, user, f"The {mark} was noted there", session="s")
    answer = call(db, "erase_session", user, "s")
    assert (answer["rows"]["conversation_history"], answer["rows"]["sessions"]) == (8, 1)
    assert find_tables_with(db, mark) == []
    assert find_tables_with(db, ids["session"]) == ["sessions"]  # the branch says whose it was
    assert {name for (name,) in table(db, "list_sessions", user, columns="session")} == {"b", "other"}
    messages = compile_list(db, user, "b", "x")
    check_list(messages)
    assert [m["content"] for m in messages][:2] == ["In the branch", "Yes"]
    states = states_of(db, user)
    wanted = {"memory": "erased", "merged": "erased", "restated": "active", "unrelated": "active"}
    assert {name: states[ids[name]] for name in wanted} == wanted
    with raises("PM003"):
        call(db, "erase_session", user, "s")
    assert persist(db, user, "s", "New", "Start")["from_turn"] == 0


def test_admission_scores_are_erased(db: Db, user: str) -> None:
    """Candidates that were rejected name no memory, but their session and turn."""
    for session in ("s", "other"):
        made = persist(db, user, session, "Hello", "Hi", "More", "Yes")
        for turn in (0, 1, None):
            plant(db, "admission_scores", user_id=user_id(db, user), in_session=made["session_id"], turn_number=turn)
    scores = "select count(*) from _memoir.admission_scores where user_id = %s"
    assert call(db, "erase_turn", user, "s", 1)["rows"]["admission_scores"] == 1
    assert one(db, scores, user_id(db, user)) == 5
    assert call(db, "erase_session", user, "s")["rows"]["admission_scores"] == 2
    assert one(db, scores, user_id(db, user)) == 3


def test_the_reason_to_forget_is_erased_too(db: Db, user: str) -> None:
    mark = unique("reason").replace("_", "")
    persist(db, user, "s", "I keep a boat", "Noted")
    memory = remembered(db, user, "Keeps a boat", session="s", source_turns=[0])
    call(db, "forget", user, memory, f"because of {mark}")
    assert len(find_tables_with(db, mark)) >= 3
    call(db, "erase_turn", user, "s", 0)
    assert find_tables_with(db, mark) == []
    assert remember(db, user, "Keeps a boat")["memory_id"] is None  # the tombstone is a keyed hash, and holds


def test_erasing_is_for_people_and_services(db: Db, user: str, memoir_dsn: str) -> None:
    persist(db, user, "s", "Hello", "Hi")
    person = {"role": "tenant", "users": [user], "actor": "person"}
    agent, half = person | {"actor": "agent"}, person | {"projects": ["red"]}
    bindings = {"agent": agent, "bot": {"role": "app", "actor": "agent"}, "half": half, "reader": "reader"}
    with world_of(memoir_dsn, person=person, **bindings) as world:
        for key in bindings:
            for what, *more in (("user",), ("session", "s"), ("turn", "s", 0)):
                failed = code(lambda: call(world.connection(key), f"erase_{what}", user, *more))
                assert failed in ("PM001", "42501"), (key, what)
        login = world.connection("person")
        assert call(login, "erase_turn", user, "s", 0)["turns"] == [0]
        assert call(login, "erase_user", user)["total"] > 0
        with pytest.raises(psycopg.Error, match="may not erase"):
            call(login, "erase_user", user)  # not bound to it any more


# Beside others --------------------------------------------------------------------------------------------------------


def run_beside(dsn: str, statement: str, parameters: list[Any]) -> Future[Any]:
    """Runs it on a connection of its own; waits until it waits for a lock or is done."""
    name = unique("background")

    def run() -> Any:
        with connect(dsn, application_name=name) as db:
            return db.execute(statement, parameters).fetchone()

    waits = "select exists (select from pg_stat_activity where application_name = %s and wait_event_type = 'Lock')"
    begun = beside(run)
    with connect(dsn) as db:
        until(lambda: begun.done() or one(db, waits, name))
    return begun


WRITES = {
    "new session": 'persist_turn(%s, \'new\', \'[{"role": "user", "content": "?!"}]\')',
    "session": 'persist_turn(%s, \'s\', \'[{"role": "user", "content": "words"}]\')',
    "memory": "remember(%s, 'Likes tea')",
    "call": "capture_call(%s, 's', 'x')",
    "settings": "set_user_settings(%s, '{\"frequent_memories\": 2}')",
    "note": "set_working_memory(%s, 's', 'k', 'note')",
    "compile": "compile_context(%s, 's', 'Hello?')",
    "branch": "branch_session(%s, 's', 'b')",
}


@pytest.mark.parametrize("write", WRITES)
def test_erasure_waits_for_earlier_writers(db: Db, memoir_dsn: str, user: str, write: str) -> None:
    """And a writer waits for an erasure. A compile waits for nothing, and leaves nothing behind."""
    mine, statement, erase = user_id(db, user), f"select memoir.{WRITES[write]}", "select memoir.erase_user(%s)"
    for first, second, waits in ((statement, erase, True), (erase, statement, write != "compile")):
        persist(db, user, "s", "Hello", "Hi")
        with connect(memoir_dsn) as holder, holder.transaction():
            holder.execute(first, [user])
            begun = run_beside(memoir_dsn, second, [user])
            assert begun.done() != waits
        assert begun.exception(30) is None or waits
        assert (second != erase and waits) or tables_of(db, mine) == []
    left = db.execute("select content from _memoir.conversation_history where user_id = %s", [mine]).fetchall()
    assert "Hello" not in str(left)


def test_erasure_waits_for_a_compile_after_a_crash(db: Db, memoir_dsn: str, user: str) -> None:
    """A crash empties the unlogged table whose row a compile locks."""
    mine = user_id(db, user)
    persist(db, user, "s", "Hello", "Hi")
    db.execute("truncate _memoir.user_locks")
    with connect(memoir_dsn) as holder, holder.transaction():
        holder.execute(f"select memoir.{WRITES['compile']}", [user])
        left = holder.execute("select count(*) from _memoir.compile_buffer where user_id = %s", [mine])
        assert left.fetchone() == (1,)
        begun = run_beside(memoir_dsn, "select memoir.erase_user(%s)", [user])
        assert not begun.done()
    assert begun.exception(30) is None and tables_of(db, mine) == []


def test_workers_bring_nothing_back(db: Db, memoir_dsn: str, user: str) -> None:
    mine = user_id(db, user)
    persist(db, user, "s", "Hello there", "Hi you")
    compile_list(db, user, "s")
    claimed = [c for c in db.execute("select * from memoir.claim_embeddings(1000)").fetchall() if c[0] == mine]
    assert len(claimed) == 2
    store = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')"
    with connect(memoir_dsn) as eraser, eraser.transaction():
        call(eraser, "erase_user", user)
        begun = run_beside(memoir_dsn, store, [[c[0] for c in claimed], [c[1] for c in claimed], VECTOR * 2])
        assert begun.result(30) == (0,)  # waits for nobody
    db.execute("call memoir.run_job('flush')")
    db.execute("call memoir.run_job('merge')")
    assert tables_of(db, mine) == []


# Out of the files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files_with(db: Db) -> Callable[[str], set[str]]:
    """A search for bytes in all relation files of the database."""
    directory, oid = db.execute(
        "select current_setting('data_directory'), oid from pg_database where datname = current_database()"
    ).fetchone()
    folder = Path(directory) / "base" / str(oid)
    paths = """select pg_relation_filepath(c.oid), coalesce('toast of ' || t.relname, c.relname) from pg_class c
        left join pg_class t on t.reltoastrelid = c.oid where pg_relation_filepath(c.oid) is not null"""

    def search(token: str) -> set[str]:
        db.execute("checkpoint")
        names = {Path(path).name: name for path, name in db.execute(paths).fetchall()}
        files = [file for file in folder.iterdir() if token.encode() in file.read_bytes()]
        return {names.get(file.name.split(".")[0].split("_")[0], file.name) for file in files}

    try:
        next(folder.iterdir())
    except PermissionError:
        pytest.skip("the server's files can't be read from here")
    return search


def queue(db: Db) -> int:
    return int(one(db, "select count(*) from _memoir.erase_queue"))


def run_erase_to_its_end(db: Db) -> None:
    """A transaction with an older snapshot, autovacuum's too, leaves work to the next run."""
    deadline = time.monotonic() + 60
    run_job(db, "erase", 600)
    while queue(db):
        assert time.monotonic() < deadline, "the job erase found no end"
        run_job(db, "erase", 600)


def test_the_bytes_leave_the_files(db: Db, user: str, files_with: Callable[[str], set[str]]) -> None:
    """Rows, TOAST, index entries. Statistics never had them."""
    token = unique("tok").replace("_", "q")
    noise = random.Random(4)
    letters = (chr(noise.randrange(161, 1000)) if n % 9 else " " for n in range(6000))
    long = f"{token} " + "".join(letters)  # too varied to be compressed
    session = f"session-{token}"
    persist(db, user, session, f"I keep {token} in the cellar", long)
    persist(db, user, "stays", "Tomatoes are red", "Yes")
    slotted = {"slot": f"slot {token}", "slot_value": token, "tags": [token], "source_key": token}
    memory = remembered(db, user, f"Keeps {token}", session=session, source_turns=[0], **slotted)
    call(db, "set_working_memory", user, session, "k", f"note {token}")
    call(db, "capture_call", user, session, long.encode())
    call(db, "open_session", user, session, system_prompt=f"You speak with {token}")
    given = {"payload": Jsonb({"of": token, "memory": memory}), "dedup_key": memory}
    plant(db, "work_items", user_id=user_id(db, user), **given)
    db.execute("call memoir.run_job('merge')")
    embed_waiting(db, VECTOR)
    compile_list(db, user, session, f"Where is {token}?")
    db.execute("analyze")
    before = files_with(token)
    assert {"conversation_history", "memory_store"} <= {name.split("_p")[0] for name in before}
    assert any(name.startswith("toast of") for name in before)
    assert any("pkey" in name or "_idx" in name or "by_" in name for name in before), before
    assert "pg_statistic" not in str(before)  # prevented, not cleared
    call(db, "erase_session", user, session)
    assert find_tables_with(db, token) == ["system_prompts"]
    assert files_with(token) != set()  # dead rows
    run_erase_to_its_end(db)
    assert files_with(token) == set() and len(table(db, "history", user, "stays")) == 2
    call(db, "erase_user", user)
    run_erase_to_its_end(db)
    assert files_with("Tomatoes are red") == set()


def test_the_job_waits_for_older_snapshots(db: Db, memoir_dsn: str, user: str, files_with) -> None:
    token = unique("tok").replace("_", "q")
    persist(db, user, "s", f"I keep {token} in the cellar", "Noted")
    run_job(db, "erase", 600)
    with connect(memoir_dsn) as reader:
        reader.execute("begin isolation level repeatable read")
        reader.execute("select 1")
        call(db, "erase_user", user)
        run_job(db, "erase", 600)
        assert queue(db) > 0 and files_with(token) != set()
        reader.execute("commit")
    run_erase_to_its_end(db)
    assert files_with(token) == set()


def test_no_column_with_words_has_statistics(db: Db) -> None:
    with_statistics = """
        select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        join pg_type t on t.oid = a.atttypid where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p')
          and not a.attisdropped and coalesce(a.attstattarget, -1) <> 0
          and (t.typcategory = 'A' or t.typname in ('text', 'jsonb', 'bytea', 'tsvector', 'halfvec'))
          and exists (select from pg_attribute u where u.attrelid = c.oid and u.attname = 'user_id')"""
    assert db.execute(with_statistics).fetchall() == []
