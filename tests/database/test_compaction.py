"""Old turns of a long session give way to a summary beside them: nothing is lost, everything can be taken back."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from calls import history, one
from psycopg.types.json import Jsonb
from servers import connect, unique

FILLER = [
    "Hello again!",
    "Thanks, that helps.",
    "Sounds good.",
    "Let me think about it for a moment.",
    "The weather is rather grey today, so I stay inside and read.",
    "I was wondering how one would usually go about such a thing, in general.",
    "That is an interesting point and there are many ways to see it.",
]
NAMES = [
    "Adelmo",
    "Brigida",
    "Casimir",
    "Dorothea",
    "Eberhard",
    "Filippa",
    "Gerlinde",
    "Hartmut",
    "Isolde",
    "Joachim",
    "Kunigunde",
    "Leopold",
    "Mechthild",
    "Notburga",
    "Ottokar",
    "Philomena",
    "Quirin",
    "Rosamunde",
    "Sigismund",
    "Theodora",
]
THINGS = [
    "violin",
    "canoe",
    "telescope",
    "bakery",
    "vineyard",
    "typewriter",
    "greenhouse",
    "sailboat",
    "accordion",
    "workshop",
    "orchard",
    "carousel",
    "windmill",
    "lighthouse",
    "observatory",
    "tannery",
    "foundry",
    "ferry",
    "quarry",
    "apiary",
]


@pytest.fixture(scope="module", autouse=True)
def small_model(memoir_dsn: str) -> None:
    """A window of 2,500 tokens, so that sessions are long soon."""
    with connect(memoir_dsn) as db:
        db.execute("select memoir.register_model('small', 'openai', 2500, 500)")
        db.execute("select memoir.set_setting('compaction_tokens', '1500')")


def talk(
    db: psycopg.Connection,
    user: str,
    session: str,
    exchanges: int,
    facts: dict[int, str] | None = None,
    tools: bool = False,
) -> None:
    """A session of `exchanges` exchanges of small talk, with facts said at some of them."""
    rng = random.Random(7)
    db.execute("select memoir.open_session(%s, %s, 'small', 'You are helpful.')", [user, session])
    for n in range(exchanges):
        messages = [
            {
                "role": "user",
                "content": " ".join([*rng.sample(FILLER, 3), (facts or {}).get(n, ""), *rng.sample(FILLER, 2)]),
            }
        ]
        if tools and n % 3 == 1:
            messages += [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": f"c{n}{k}",
                            "type": "function",
                            "function": {"name": "look", "arguments": f'{{"at": "{k}"}}'},
                        }
                        for k in "ab"
                    ],
                }
            ]
            messages += [
                {"role": "tool", "tool_call_id": f"c{n}{k}", "content": f"shelf {k} holds {n} boxes"} for k in "ab"
            ]
        messages += [{"role": "assistant", "content": " ".join(rng.sample(FILLER, 4))}]
        db.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb(messages)])


def compactions(db: psycopg.Connection, user: str, session: str) -> list[dict]:
    cursor = db.execute("select * from memoir.list_compactions(%s, %s)", [user, session])
    names = [c.name for c in cursor.description]
    return [dict(zip(names, row)) for row in cursor]


def sweep(db: psycopg.Connection, job: str = "compaction") -> dict[str, int]:
    """Runs the job; what it counted."""
    db.execute("call memoir.run_job(%s)", [job])
    # The newest that ended: a sweep beside this one may be under way still.
    counts, outcome, error = db.execute(
        "select counts, outcome, error from _memoir.job_runs where job = %s and outcome is not null order by run_id desc limit 1",
        [job],
    ).fetchone()
    assert outcome in ("done", "still running"), (outcome, error)
    return counts


@pytest.mark.acceptance
def test_evidence_for_twenty_facts_stays_reachable(db: psycopg.Connection, user: str) -> None:
    facts = {
        3 + 4 * i: f"{name} keeps a {thing} and pays {31 + i} euros a month for it."
        for i, (name, thing) in enumerate(zip(NAMES, THINGS))
    }
    talk(db, user, "long", 90, facts, tools=True)
    before = history(db, user, "long")
    total = sum(turn["tokens"] for turn in before)

    def found() -> set[str]:
        hits = set()
        for name, thing in zip(NAMES, THINGS):
            messages = one(
                db, "select memoir.compile_context(%s, 'long', %s)", user, f"How much does {name} pay for the {thing}?"
            )
            if any(f"{name} keeps a {thing}" in str(message["content"]) for message in messages):
                hits.add(name)
        return hits

    assert found() == set(NAMES)
    assert sweep(db)["rows"] >= 2
    assert history(db, user, "long") == before
    assert found() == set(NAMES)

    rows = compactions(db, user, "long")
    counting = [row for row in rows if row["counts"]]
    assert counting[0]["from_turn"] == 0 and all(
        a["to_turn"] + 1 == b["from_turn"] for a, b in zip(counting, counting[1:])
    )
    # Whole exchanges, never the running one; at least five tokens of turns to one of summary.
    starts = [turn["turn_index"] for turn in before if turn["role"] == "user"] + [len(before)]
    assert all(row["to_turn"] + 1 in starts for row in rows) and counting[-1]["to_turn"] < starts[-2]
    assert all(row["tokens"] >= 5 * row["summary_tokens"] for row in rows), [
        (r["tokens"], r["summary_tokens"]) for r in rows
    ]
    # Makes room for many turns: what is shown is well below what would be compacted again.
    shown = sum(turn["tokens"] for turn in before if turn["turn_index"] > counting[-1]["to_turn"])
    assert shown < total / 3
    summary = one(
        db,
        "select summary_text from _memoir.sessions where external_id = 'long' and user_id = (select user_id from _memoir.users where external_id = %s)",
        user,
    )
    system = one(db, "select memoir.compile_context(%s, 'long', 'Well?')", user)[0]
    assert (
        system["role"] == "system"
        and "<memoir-summary>" in system["content"]
        and summary.split("\n")[1] in system["content"]
    )
    # What matters is preferred to small talk.
    assert sum(name in summary for name in NAMES) >= 3 and "Sounds good" not in summary and "Hello again" not in summary


@pytest.mark.acceptance
def test_summaries_pile_up_into_higher_levels(db: psycopg.Connection, user: str) -> None:
    facts = {n: f"Decision {n}: we will use the {THINGS[n % 20]} in room {n}." for n in range(0, 300, 2)}
    db.execute("select memoir.open_session(%s, 'pile', 'small', p_settings => '{\"summary_tokens\": 200}')", [user])
    for start in range(0, 300, 50):
        talk_on(db, user, "pile", facts, start, start + 50)
        sweep(db)
    rows = compactions(db, user, "pile")
    counting = [row for row in rows if row["counts"]]
    assert max(row["level"] for row in counting) >= 2
    assert all(a["to_turn"] + 1 == b["from_turn"] for a, b in zip(counting, counting[1:]))
    texts = one(db, "select summary_text from _memoir.sessions where external_id = 'pile'")
    assert texts == "\n".join(row["summary"] for row in counting)
    assert one(db, "select memoir.count_tokens(%s, 'small')", texts) <= 210
    # Only summaries that count are found.
    alive = db.execute(
        "select distinct ref_id from _memoir.search_items i join _memoir.users using (user_id) where external_id = %s and kind = 's' and not dead",
        [user],
    ).fetchall()
    assert {row[0] for row in alive} == {row["compaction_id"] for row in counting}


def talk_on(db: psycopg.Connection, user: str, session: str, facts: dict[int, str], start: int, end: int) -> None:
    for n in range(start, end):
        db.execute(
            "select memoir.persist_turn(%s, %s, %s)",
            [
                user,
                session,
                Jsonb(
                    [
                        {"role": "user", "content": f"{FILLER[n % 7]} {facts.get(n, '')}"},
                        {"role": "assistant", "content": FILLER[(n + 3) % 7]},
                    ]
                ),
            ],
        )


def test_undoing_shows_the_turns_again_and_holds(db: psycopg.Connection, user: str) -> None:
    talk(db, user, "back", 40)
    sweep(db)
    rows = compactions(db, user, "back")
    last = [row for row in rows if row["counts"]][-1]
    undone = one(db, "select memoir.undo_compaction(%s, 'back', %s)", user, last["compaction_id"])
    assert undone["undone"] >= 1 and (undone["through"] is None or undone["through"] < last["from_turn"])
    sweep(db)
    assert not any(row["counts"] and row["to_turn"] >= last["from_turn"] for row in compactions(db, user, "back"))
    assert one(db, "select memoir.undo_compaction(%s, 'back', %s)", user, last["compaction_id"])["undone"] == 0
    # The first one: all that stands behind is shown again, too.
    first = one(db, "select memoir.undo_compaction(%s, 'back', %s)", user, rows[0]["compaction_id"])
    assert first["through"] is None and first["summary"] is None
    assert "<memoir-summary>" not in one(db, "select memoir.compile_context(%s, 'back', 'Hm?')", user)[0]["content"]
    # Asked for by hand it comes back.
    again = one(db, "select memoir.compact_session(%s, 'back')", user)
    assert again["rows"] >= 1 and again["through"] is not None
    with pytest.raises(psycopg.Error) as failure:
        db.execute("select memoir.undo_compaction(%s, 'back', gen_random_uuid())", [user])
    assert failure.value.sqlstate == "PM004"


def test_forgetting_leaves_no_trace_in_a_summary(db: psycopg.Connection, user: str) -> None:
    talk(
        db,
        user,
        "secret",
        40,
        {2: "My daughter Ximena was born in Ulm in 2019.", 4: "Our bank is called Zander and account 4711 is due."},
    )
    sweep(db)
    turn = next(t["turn_index"] for t in history(db, user, "secret") if "Ximena" in (t["content"] or ""))
    memory = one(
        db,
        "select memoir.remember(%s, 'The daughter is Ximena', p_session => 'secret', p_source_turns => %s)",
        user,
        [turn],
    )["memory_id"]
    assert "Ximena" in str(compactions(db, user, "secret"))
    db.execute("select memoir.forget(%s, %s)", [user, memory])

    def seen() -> str:
        live = [row["summary"] for row in compactions(db, user, "secret") if row["counts"]]
        found = db.execute("select content from memoir.recall(%s, 'Ximena Ulm daughter')", [user]).fetchall()
        return f"{live} {found} {one(db, 'select memoir.compile_context(%s, %s, %s)', user, 'secret', 'Who?')}"

    assert "Ximena" not in seen()
    sweep(db)
    db.execute("select memoir.compact_session(%s, 'secret')", [user])
    db.execute("select memoir.summarize_session(%s, 'secret')", [user])
    assert "Ximena" not in seen()
    assert any(row["counts"] and row["from_turn"] <= turn <= row["to_turn"] for row in compactions(db, user, "secret"))
    assert "Zander" in str([row["summary"] for row in compactions(db, user, "secret") if row["counts"]])


def test_pinned_turns_stay_out_of_summaries(db: psycopg.Connection, user: str) -> None:
    talk(db, user, "pin", 60, tools=True)
    turns = history(db, user, "pin")
    answer = next(t["turn_index"] for t in turns if t["role"] == "tool" and t["turn_index"] > 20)
    start = max(t["turn_index"] for t in turns if t["role"] == "user" and t["turn_index"] < answer)
    end = min(t["turn_index"] for t in turns if t["role"] == "user" and t["turn_index"] > answer)
    db.execute("select memoir.pin_turns(%s, 'pin', %s)", [user, answer])
    sweep(db)

    def covered() -> set[int]:
        return {
            n
            for row in compactions(db, user, "pin")
            if row["counts"]
            for n in range(row["from_turn"], row["to_turn"] + 1)
        }

    # The whole exchange around a pinned tool result stays, what is before and behind it does not.
    assert set(range(start)) | {end} <= covered() and not covered() & set(range(start, end))
    through = one(
        db,
        "select s.summary_through from _memoir.sessions s join _memoir.users u using (user_id) where u.external_id = %s and s.external_id = 'pin'",
        user,
    )
    assert through == max(covered())
    # Pinned afterwards: its summary no longer counts, until it is let go.
    row = next(row for row in compactions(db, user, "pin") if row["counts"])
    db.execute("select memoir.pin_turns(%s, 'pin', %s)", [user, row["from_turn"]])
    assert row["from_turn"] not in covered()
    sweep(db)
    assert row["from_turn"] not in covered()
    db.execute("select memoir.unpin_turns(%s, 'pin')", [user])
    counting = [row for row in compactions(db, user, "pin") if row["counts"]]
    assert row["from_turn"] in covered() and all(a["to_turn"] < b["from_turn"] for a, b in zip(counting, counting[1:]))
    sweep(db)
    assert one(db, "select memoir.compact_session(%s, 'pin', 0)", user)["through"] == max(
        covered()
    ) and covered() == set(range(max(covered()) + 1))


def test_pinned_turns_stay_in_the_list(db: psycopg.Connection, user: str) -> None:
    talk(db, user, "kept", 60, {4: "The alarm code of the tannery is Zander four."})
    turn = next(t["turn_index"] for t in history(db, user, "kept") if "Zander" in (t["content"] or ""))
    db.execute("select memoir.pin_turns(%s, 'kept', %s)", [user, turn])
    sweep(db)
    query = "Which jumper should I wear on Thursday?"

    def shown(session: str = "kept", **named: Any) -> tuple[str, str]:
        """What the list says of it: in its recall, elsewhere."""
        more = "".join(f", p_{name} => %s" for name in named)
        last, *rest = reversed(
            one(db, f"select memoir.compile_context(%s, %s, %s{more})", user, session, query, *named.values())
        )
        return last["content"] if "Zander four" in last["content"] else "", "".join(
            str(m["content"]) for m in rest if "Zander four" in str(m["content"])
        )

    # No summary has it, the window has left it behind, the question is about something else: it is there all the same, once.
    recall, elsewhere = shown()
    assert recall.count("Zander four") == 1 and elsewhere == "" and shown()[0] == recall
    [(arms, reason)] = db.execute(
        "select arms, reason from memoir.explain_context(%s, 'kept', %s) where turn_index = %s", [user, query, turn]
    )
    assert arms == ["pinned"] and reason is None
    # A branch that shares the turn shares the pin; other sessions don't.
    db.execute("select memoir.branch_session(%s, 'kept', 'twig')", [user])
    assert "Zander four" in shown("twig")[0] and shown("elsewhere") == ("", "")
    # For so many turns only; and no longer than it is wanted.
    db.execute("select memoir.pin_turns(%s, 'kept', %s, p_turns => 1)", [user, turn])
    assert "Zander four" in shown()[0]
    db.execute(
        "select memoir.persist_turn(%s, 'kept', %s)",
        [user, Jsonb([{"role": "user", "content": "Fine."}, {"role": "assistant", "content": "Good."}])],
    )
    assert shown()[0] == ""
    for end in ("unpin_turns(%s, 'kept')", "mark_turn(%s, 'kept', {turn}, 'secret')"):
        db.execute("select memoir.pin_turns(%s, 'kept', %s)", [user, turn])
        assert "Zander four" in shown()[0]
        db.execute(f"select memoir.{end}".format(turn=turn), [user])
        assert shown()[0] == ""


def test_branches_share_summaries_as_far_as_they_share_turns(db: psycopg.Connection, user: str) -> None:
    talk(db, user, "stem", 40)
    sweep(db)
    rows = [row for row in compactions(db, user, "stem") if row["counts"]]
    assert len(rows) >= 1
    early, late = rows[0]["to_turn"], rows[0]["to_turn"] + 1
    db.execute("select memoir.branch_session(%s, 'stem', 'late', %s)", [user, late])
    db.execute("select memoir.branch_session(%s, 'stem', 'early', %s)", [user, early - 1])
    state = {
        name: through
        for name, through in db.execute(
            "select s.external_id, s.summary_through from _memoir.sessions s join _memoir.users u using (user_id) where u.external_id = %s",
            [user],
        )
    }
    assert state["late"] == rows[0]["to_turn"] and state["early"] is None
    db.execute("select memoir.undo_compaction(%s, 'stem', %s)", [user, rows[0]["compaction_id"]])
    assert (
        one(db, "select summary_through from _memoir.sessions where external_id = 'late' and parent_turn is not null")
        is None
    )
    # A branch compacts shared turns in rows of its own.
    talk_on(db, user, "early", {}, 0, 40)
    sweep(db)
    own = [row for row in compactions(db, user, "early") if row["counts"]]
    assert own and own[0]["from_turn"] == 0
    assert [t["content"] for t in history(db, user, "early")][:4] == [t["content"] for t in history(db, user, "stem")][
        :4
    ]


def test_what_was_known_then_has_no_later_summary(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.set_clock('2026-03-01T10:00:00Z')")
    talk(db, user, "then", 40)
    db.execute("select memoir.set_clock('2026-03-02T10:00:00Z')")
    sweep(db)
    db.execute("select memoir.set_clock('2026-03-03T10:00:00Z')")
    now, then = (
        one(db, "select memoir.compile_context(%s, 'then', 'Hm?', p_as_of => %s)", user, at)
        for at in ("2026-03-02T12:00:00Z", "2026-03-01T12:00:00Z")
    )
    db.execute("select memoir.set_clock(null)")
    assert "<memoir-summary>" in now[0]["content"] and "<memoir-summary>" not in then[0]["content"]


def test_a_session_summary_hides_nothing_and_is_found(db: psycopg.Connection, user: str) -> None:
    talk(db, user, "whole", 6, {1: "We decided to move the Zebrafish project to Lisbon in May 2027."})
    shown = one(db, "select memoir.compile_context(%s, 'whole', 'Hm?')", user)
    made = one(db, "select memoir.summarize_session(%s, 'whole')", user)
    assert "Zebrafish" in made["summary"] and made["through"] == 11
    assert one(db, "select memoir.summarize_session(%s, 'whole')", user)["compaction_id"] == made["compaction_id"]
    assert one(db, "select memoir.compile_context(%s, 'whole', 'Hm?')", user) == shown
    found = db.execute(
        "select content, session from memoir.recall(%s, 'Zebrafish', p_kinds => '{summary}')", [user]
    ).fetchall()
    assert found == [(made["summary"], "whole")]
    talk_on(db, user, "whole", {0: "The Zebrafish project got a budget of 90000 euros."}, 0, 1)
    newer = one(db, "select memoir.summarize_session(%s, 'whole')", user)
    assert newer["compaction_id"] != made["compaction_id"] and "90000" in newer["summary"]
    assert [
        row
        for (row,) in db.execute("select content from memoir.recall(%s, 'Zebrafish', p_kinds => '{summary}')", [user])
    ] == [newer["summary"]]
    db.execute("select memoir.open_session(%s, 'nothing')", [user])
    assert one(db, "select memoir.summarize_session(%s, 'nothing')", user)["summary"] is None
    # A session that ends is summarised by the job.
    talk(db, user, "ended", 4, {2: "The Okapi launch is due on 3 June."})
    db.execute("select memoir.close_session(%s, 'ended')", [user])
    assert sweep(db, "summaries")["summaries"] >= 1
    assert (
        "Okapi"
        in db.execute(
            "select content from memoir.recall(%s, 'Okapi launch', p_kinds => '{summary}')", [user]
        ).fetchone()[0]
    )


@pytest.mark.acceptance
def test_compiles_beside_compaction_never_tear(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """Every turn of the middle of the session is either shown, summarised or recalled in each single compile: none sees half a compaction."""
    session = unique("torn")
    talk(db, user, session, 60)
    count = len(history(db, user, session))

    def compiles() -> int:
        with connect(memoir_dsn) as own:
            for n in range(40):
                got = one(own, "select memoir.context(%s, %s, %s)", user, session, f"What now, {n}?")
                shown = got["turns"]
                assert shown == list(range(shown[0], count)), shown
                summary = got["messages"][0]["content"]
                # No summary before the compaction, the window from behind it afterwards.
                assert ("<memoir-summary>" in summary) or shown[0] <= count
        return n

    def compacts() -> None:
        with connect(memoir_dsn) as own:
            for _ in range(8):
                one(own, "select memoir.compact_session(%s, %s, 600)", user, session)
                row = own.execute(
                    "select compaction_id from memoir.list_compactions(%s, %s) where counts order by from_turn limit 1",
                    [user, session],
                ).fetchone()
                one(own, "select memoir.undo_compaction(%s, %s, %s)", user, session, row[0])

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(compiles), pool.submit(compiles), pool.submit(compacts)]
        for job in jobs:
            job.result()


def test_two_sweeps_at_once_do_the_work_once(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    for n in range(4):
        talk(db, user, f"twin{n}", 40)

    def run() -> None:
        with connect(memoir_dsn) as own:
            sweep(own)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(run), pool.submit(run)]:
            job.result()
    for n in range(4):
        rows = [row for row in compactions(db, user, f"twin{n}") if row["level"] == 1]
        assert len({row["from_turn"] for row in rows}) == len(rows) >= 1


def test_a_summary_is_made_of_what_is_said(db: psycopg.Connection, user: str) -> None:
    """Not of code, tables, headings, reactions; and what it says stands without its day."""
    messages = [
        (
            "user",
            "Thanks, that's really cool!\nHere is my initial code:\n```python\nclass Ledger: pass\n```\nimport sqlite3\nconn = sqlite3.connect('my.db')\nI moved to Bergen yesterday with Ottilie.",
        ),
        (
            "assistant",
            "Totally agree, Mel.\n### Step 3: Caching\n| Churn | 10% | 12% |\n1. **Deadline:** 31 March for the ledger\n2. Done",
        ),
        ("user", "We decided to keep the ledger in SQLite until next Friday.\nAND user_id = 1\nrequirements.txt"),
        ("assistant", "That's great, Mel! You're so right. I'm so happy for you."),
    ]
    for _ in range(3):
        for role, text in messages:
            db.execute(
                "select memoir.append_messages(%s, 'work', %s)",
                [user, Jsonb([{"role": role, "content": text, "created_at": "2023-05-08T09:00:00Z"}])],
            )
    db.execute(
        'select memoir.set_user_settings(%s, \'{"compaction_ratio": 5, "session_summary_tokens": 1000}\')', [user]
    )
    lines = one(db, "select memoir.summarize_session(%s, 'work')", user)["summary"].split("\n")
    assert lines[0] == "8 May 2023:"
    assert {line.partition(": ")[2] for line in lines[1:]} == {
        "I moved to Bergen on 7 May 2023 with Ottilie.",
        "Deadline: 31 March for the ledger",
        "We decided to keep the ledger in SQLite until 19 May 2023.",
    }
    compacted = one(db, "select memoir.compact_session(%s, 'work', 0)", user)["summary"].split("\n")
    assert set(compacted[1:]) <= set(lines[1:]) and len(compacted) > 1
