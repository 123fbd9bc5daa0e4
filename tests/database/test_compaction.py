"""Old turns of a long session give way to a summary beside them: nothing is lost, everything can be taken back."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from calls import Db, call, history, persist, raises, recalled, remembered, run_job, set_settings, store, table
from servers import connect

FILLER = [
    "Hello again!",
    "Thanks, that helps.",
    "Sounds good.",
    "Let me think about it for a moment.",
    "The weather is rather grey today, so I stay inside and read.",
    "I was wondering how one would usually go about such a thing, in general.",
    "That is an interesting point and there are many ways to see it.",
]
NAMES = """Adelmo Brigida Casimir Dorothea Eberhard Filippa Gerlinde Hartmut Isolde Joachim Kunigunde Leopold Mechthild
    Notburga Ottokar Philomena Quirin Rosamunde Sigismund Theodora""".split()
THINGS = """violin canoe telescope bakery vineyard typewriter greenhouse sailboat accordion workshop orchard carousel
    windmill lighthouse observatory tannery foundry ferry quarry apiary""".split()
Row = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def small_model(memoir_dsn: str) -> None:
    """A window of 2,500 tokens, so that sessions are long soon."""
    with connect(memoir_dsn) as db:
        call(db, "register_model", "small", "openai", 2500, 500)
        set_settings(db, compaction_tokens=1500)


def talk(
    db: Db, user: str, session: str, exchanges: int, facts: dict[int, str] | None = None, tools: bool = False
) -> None:
    """A session of `exchanges` exchanges of small talk, with facts said at some of them."""
    rng = random.Random(7)
    call(db, "open_session", user, session, "small", "You are helpful.")
    for n in range(exchanges):
        said: list[str | Row] = [" ".join([*rng.sample(FILLER, 3), (facts or {}).get(n, ""), *rng.sample(FILLER, 2)])]
        if tools and n % 3 == 1:
            ids = [f"c{n}a", f"c{n}b"]
            look = {"name": "look", "arguments": "{}"}
            calls = [{"id": key, "type": "function", "function": look} for key in ids]
            said.append({"role": "assistant", "content": None, "tool_calls": calls})
            said += [{"role": "tool", "tool_call_id": key, "content": f"the shelf holds {n} boxes"} for key in ids]
        persist(db, user, session, *said, {"role": "assistant", "content": " ".join(rng.sample(FILLER, 4))})


def compactions(db: Db, user: str, session: str) -> list[Row]:
    return [row for (row,) in table(db, "list_compactions", user, session, columns="to_jsonb(list_compactions)")]


def counting(db: Db, user: str, session: str) -> list[Row]:
    return [row for row in compactions(db, user, session) if row["counts"]]


def compile_list(db: Db, user: str, session: str, query: str = "Hm?", **named: Any) -> list[Row]:
    return list(call(db, "compile_context", user, session, query, **named))


@pytest.mark.acceptance
def test_evidence_for_twenty_facts_stays_reachable(db: Db, user: str) -> None:
    pairs = dict(zip(NAMES, THINGS))
    facts = {
        3 + 4 * i: f"{name} keeps a {thing} and pays {31 + i} euros a month for it."
        for i, (name, thing) in enumerate(pairs.items())
    }
    talk(db, user, "long", 90, facts, tools=True)
    before = history(db, user, "long")

    def reachable() -> set[str]:
        asked = "How much does {} pay for the {}?"
        return {
            n for n, t in pairs.items() if f"{n} keeps a {t}" in str(compile_list(db, user, "long", asked.format(n, t)))
        }

    assert reachable() == set(NAMES) and run_job(db, "compaction")["rows"] >= 2
    assert history(db, user, "long") == before and reachable() == set(NAMES)
    rows = counting(db, user, "long")
    assert rows[0]["from_turn"] == 0 and all(a["to_turn"] + 1 == b["from_turn"] for a, b in zip(rows, rows[1:]))
    # Whole exchanges, never the running one; at least five tokens of turns to one of summary.
    starts = [turn["turn_index"] for turn in before if turn["role"] == "user"] + [len(before)]
    assert all(row["to_turn"] + 1 in starts for row in rows) and rows[-1]["to_turn"] < starts[-2]
    assert all(row["tokens"] >= 5 * row["summary_tokens"] for row in rows)
    # Makes room for many turns: what is shown is well below what would be compacted again.
    left = sum(turn["tokens"] for turn in before if turn["turn_index"] > rows[-1]["to_turn"])
    assert left < sum(turn["tokens"] for turn in before) / 3
    # What matters is preferred to small talk.
    summary = "\n".join(row["summary"] for row in rows)
    system = compile_list(db, user, "long")[0]["content"]
    assert "<memoir-summary>" in system and summary.split("\n")[1] in system
    assert sum(name in summary for name in NAMES) >= 3 and "Sounds good" not in summary and "Hello again" not in summary


@pytest.mark.acceptance
def test_summaries_pile_up_into_higher_levels(db: Db, user: str) -> None:
    call(db, "open_session", user, "pile", "small", settings={"summary_tokens": 200})
    for n in range(300):
        fact = f"Decision {n}: we will use the {THINGS[n % 20]} in room {n}." if n % 2 == 0 else ""
        persist(db, user, "pile", f"{FILLER[n % 7]} {fact}", FILLER[(n + 3) % 7])
        if n % 50 == 49:
            run_job(db, "compaction")
    rows = counting(db, user, "pile")
    assert max(row["level"] for row in rows) >= 2
    assert all(a["to_turn"] + 1 == b["from_turn"] for a, b in zip(rows, rows[1:]))
    text = "\n".join(row["summary"] for row in rows)
    assert call(db, "count_tokens", text, "small") <= 210 and text in compile_list(db, user, "pile")[0]["content"]
    # Only summaries that count are found.
    found = set(recalled(db, user, "Which decision on which room?", kinds=["summary"], limit=50))
    assert found and found <= {row["summary"] for row in rows}


def test_corrected_stretch_is_compacted_again(db: Db, user: str) -> None:
    """What a correction undid is not sent whole until the session has grown past the old mark."""
    talk(db, user, "long", 60, {2: "My dentist is Dr. Okafor."})
    while run_job(db, "compaction")["rows"]:
        pass
    before = counting(db, user, "long")[-1]["to_turn"]
    kept = call(db, "remember", user, "The dentist is Dr. Okafor", session="long", source_turns=[4])["memory_id"]
    call(db, "forget", user, kept)
    assert all(row["from_turn"] > 4 for row in counting(db, user, "long"))
    while run_job(db, "summaries")["more"]:
        pass
    while run_job(db, "compaction")["rows"]:
        pass
    rows = counting(db, user, "long")
    assert rows and min(row["from_turn"] for row in rows) == 0 and max(row["to_turn"] for row in rows) >= before
    assert "Okafor" not in str([row["summary"] for row in rows])


def test_undoing_shows_the_turns_again_and_holds(db: Db, user: str) -> None:
    talk(db, user, "back", 40)
    run_job(db, "compaction")
    rows = counting(db, user, "back")
    first, last = rows[0], rows[-1]
    undone = call(db, "undo_compaction", user, "back", last["compaction_id"])
    assert undone["undone"] >= 1 and (undone["through"] is None or undone["through"] < last["from_turn"])
    run_job(db, "compaction")
    assert not any(row["to_turn"] >= last["from_turn"] for row in counting(db, user, "back"))
    assert call(db, "undo_compaction", user, "back", last["compaction_id"])["undone"] == 0
    # The first one: all that stands behind is shown again, too.
    done = call(db, "undo_compaction", user, "back", first["compaction_id"])
    assert done["through"] is None and done["summary"] is None
    assert "<memoir-summary>" not in compile_list(db, user, "back")[0]["content"]
    # Asked for by hand it comes back.
    again = call(db, "compact_session", user, "back")
    assert again["rows"] >= 1 and again["through"] is not None
    with raises("PM004"):
        call(db, "undo_compaction", user, "back", "00000000-0000-0000-0000-000000000000")


def test_forgetting_leaves_no_trace_in_a_summary(db: Db, user: str) -> None:
    facts = {2: "My daughter Ximena was born in Ulm in 2019.", 4: "Our bank is called Zander and account 4711 is due."}
    talk(db, user, "secret", 40, facts)
    run_job(db, "compaction")
    turn = next(t["turn_index"] for t in history(db, user, "secret") if "Ximena" in t["content"])
    memory = remembered(db, user, "The daughter is Ximena", session="secret", source_turns=[turn])
    assert "Ximena" in str(compactions(db, user, "secret"))
    call(db, "forget", user, memory)

    def seen() -> str:
        live = [row["summary"] for row in counting(db, user, "secret")]
        return f"{live} {recalled(db, user, 'Ximena Ulm daughter')} {compile_list(db, user, 'secret', 'Who?')}"

    assert "Ximena" not in seen()
    run_job(db, "compaction")
    call(db, "compact_session", user, "secret")
    call(db, "summarize_session", user, "secret")
    assert "Ximena" not in seen() and "Zander" in seen()
    assert any(row["from_turn"] <= turn <= row["to_turn"] for row in counting(db, user, "secret"))


def test_forgetting_joins_what_is_left_in_a_job(db: Db, user: str) -> None:
    talk(db, user, "late", 60, {2: "Our bank is called Zander."})
    run_job(db, "compaction")
    persist(db, user, "late", "My daughter Ximena was born in Ulm in 2019.", "Noted.")
    talk(db, user, "late", 60)
    run_job(db, "compaction")
    turn = next(t["turn_index"] for t in history(db, user, "late") if "Ximena" in t["content"])
    memory = remembered(db, user, "The daughter is Ximena", session="late", source_turns=[turn])
    before = counting(db, user, "late")
    assert before[0]["to_turn"] < turn <= before[-1]["to_turn"]

    def shown() -> str:
        return str(compile_list(db, user, "late")[0]["content"])

    call(db, "forget", user, memory)
    assert "Ximena" not in shown() and before[0]["summary"] not in shown()
    assert run_job(db, "summaries")["refreshed"] >= 1
    assert "Ximena" not in shown() and before[0]["summary"] in shown()


def test_pinned_turns_stay_out_of_summaries(db: Db, user: str) -> None:
    talk(db, user, "pin", 60, tools=True)
    turns = history(db, user, "pin")
    answer = next(t["turn_index"] for t in turns if t["role"] == "tool" and t["turn_index"] > 20)
    start = max(t["turn_index"] for t in turns if t["role"] == "user" and t["turn_index"] < answer)
    end = min(t["turn_index"] for t in turns if t["role"] == "user" and t["turn_index"] > answer)
    call(db, "pin_turns", user, "pin", answer)
    run_job(db, "compaction")

    def cover() -> set[int]:
        return {n for row in counting(db, user, "pin") for n in range(row["from_turn"], row["to_turn"] + 1)}

    # The whole exchange around a pinned tool result stays, what is before and behind it does not.
    assert set(range(start)) | {end} <= cover() and not cover() & set(range(start, end))
    # Pinned afterwards: its summary no longer counts, until it is let go.
    first = counting(db, user, "pin")[0]["from_turn"]
    call(db, "pin_turns", user, "pin", first)
    assert first not in cover()
    run_job(db, "compaction")
    assert first not in cover()
    call(db, "unpin_turns", user, "pin")
    assert first in cover()
    run_job(db, "compaction")
    last = call(db, "compact_session", user, "pin", 0)["through"]
    assert cover() == set(range(last + 1))


def test_pinned_turns_stay_in_the_list(db: Db, user: str) -> None:
    talk(db, user, "kept", 60, {4: "The alarm code of the tannery is Zander four."})
    turn = next(t["turn_index"] for t in history(db, user, "kept") if "Zander" in t["content"])
    call(db, "pin_turns", user, "kept", turn)
    run_job(db, "compaction")
    query = "Which jumper should I wear on Thursday?"

    def times(session: str = "kept") -> tuple[int, int]:
        """How often the list says it: in its recall, elsewhere."""
        *rest, last = (
            str(message["content"]).count("Zander four") for message in compile_list(db, user, session, query)
        )
        return last, sum(rest)

    # No summary has it, the window has left it behind, the question is about something else: it is there all the same, once.
    assert times() == (1, 0)
    rows = table(db, "explain_context", user, "kept", query, columns="turn_index, arms, reason")
    assert [row[1:] for row in rows if row[0] == turn] == [(["pinned"], None)]
    # A branch that shares the turn shares the pin; other sessions don't.
    call(db, "branch_session", user, "kept", "twig")
    assert times("twig") == (1, 0) and times("elsewhere") == (0, 0)
    # For so many turns only; and no longer than it is wanted.
    call(db, "pin_turns", user, "kept", turn, turns=1)
    assert times() == (1, 0)
    persist(db, user, "kept", "Fine.", "Good.")
    assert times() == (0, 0)
    ends: list[Callable[[], Any]] = [
        lambda: call(db, "unpin_turns", user, "kept"),
        lambda: call(db, "mark_turn", user, "kept", turn, "secret"),
    ]
    for end in ends:
        call(db, "pin_turns", user, "kept", turn)
        assert times() == (1, 0)
        end()
        assert times() == (0, 0)


def test_branches_share_summaries_as_far_as_turns(db: Db, user: str) -> None:
    talk(db, user, "stem", 40)
    run_job(db, "compaction")
    first = counting(db, user, "stem")[0]
    call(db, "branch_session", user, "stem", "late", first["to_turn"] + 1)
    call(db, "branch_session", user, "stem", "early", first["to_turn"] - 1)

    def summary(session: str) -> str | None:
        return dict(table(db, "list_sessions", user, columns="session, summary"))[session]

    assert (summary("late") or "").startswith(first["summary"][:12]) and summary("early") is None
    call(db, "undo_compaction", user, "stem", first["compaction_id"])
    assert summary("late") is None
    # A branch compacts shared turns in rows of its own.
    for n in range(40):
        persist(db, user, "early", FILLER[n % 7], FILLER[(n + 3) % 7])
    run_job(db, "compaction")
    assert counting(db, user, "early")[0]["from_turn"] == 0
    assert [t["content"] for t in history(db, user, "early")][:4] == [t["content"] for t in history(db, user, "stem")][
        :4
    ]


def test_as_of_has_no_later_summary(db: Db, user: str, clock: Callable[[str], None]) -> None:
    clock("2026-03-01T10:00:00Z")
    talk(db, user, "then", 40)
    clock("2026-03-02T10:00:00Z")
    run_job(db, "compaction")
    clock("2026-03-03T10:00:00Z")
    for day, is_there in (("02", True), ("01", False)):
        system = compile_list(db, user, "then", as_of=f"2026-03-{day}T12:00:00Z")[0]["content"]
        assert ("<memoir-summary>" in system) == is_there


def test_session_summary_hides_nothing_and_is_found(db: Db, user: str) -> None:
    def find(query: str = "Zebrafish") -> list[str]:
        return recalled(db, user, query, kinds=["summary"])

    talk(db, user, "whole", 6, {1: "We decided to move the Zebrafish project to Lisbon in May 2027."})
    before = compile_list(db, user, "whole")
    made = call(db, "summarize_session", user, "whole")
    assert "Zebrafish" in made["summary"] and made["through"] == 11
    assert call(db, "summarize_session", user, "whole")["compaction_id"] == made["compaction_id"]
    assert compile_list(db, user, "whole") == before and find() == [made["summary"]]
    persist(db, user, "whole", "The Zebrafish project got a budget of 90000 euros.", "Noted.")
    newer = call(db, "summarize_session", user, "whole")
    assert newer["compaction_id"] != made["compaction_id"] and "90000" in newer["summary"]
    assert find() == [newer["summary"]]
    call(db, "open_session", user, "nothing")
    assert call(db, "summarize_session", user, "nothing")["summary"] is None
    # A session that ends is summarised by the job.
    talk(db, user, "ended", 4, {2: "The Okapi launch is due on 3 June."})
    call(db, "close_session", user, "ended")
    assert run_job(db, "summaries")["summaries"] >= 1 and "Okapi" in find("Okapi launch")[0]


@pytest.mark.acceptance
def test_compiles_beside_compaction_never_tear(memoir_dsn: str, db: Db, user: str) -> None:
    """Every turn behind the first that is shown is shown: no compile sees half a compaction."""
    talk(db, user, "torn", 60)
    count = len(history(db, user, "torn"))

    def compile_often() -> None:
        with connect(memoir_dsn) as own:
            for n in range(40):
                turns = call(own, "context", user, "torn", f"What now, {n}?")["turns"]
                assert turns == list(range(turns[0], count)), turns

    def compact_often() -> None:
        with connect(memoir_dsn) as own:
            for _ in range(8):
                call(own, "compact_session", user, "torn", 600)
                call(own, "undo_compaction", user, "torn", counting(own, user, "torn")[0]["compaction_id"])

    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(work) for work in (compile_often, compile_often, compact_often)]:
            job.result()


def test_two_sweeps_at_once_do_the_work_once(memoir_dsn: str, db: Db, user: str) -> None:
    for n in range(4):
        talk(db, user, f"twin{n}", 40)

    def sweep() -> None:
        with connect(memoir_dsn) as own:
            own.execute("call memoir.run_job('compaction')")

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(sweep), pool.submit(sweep)]:
            job.result()
    for n in range(4):
        starts = [row["from_turn"] for row in compactions(db, user, f"twin{n}") if row["level"] == 1]
        assert len(set(starts)) == len(starts) >= 1


def test_summary_is_made_of_statements(db: Db, user: str) -> None:
    """Not of code, tables, headings, reactions; and what it says stands without its day."""
    code = "```python\nclass Ledger: pass\n```\nimport sqlite3\nconn = sqlite3.connect('my.db')"
    said = [
        f"Thanks, that's really cool!\nHere is my initial code:\n{code}\nI moved to Bergen yesterday with Ottilie.",
        "Totally agree, Mel.\n### Step 3: Caching\n| Churn | 10% | 12% |\n1. **Deadline:** 31 March for the ledger\n2. Done",
        "We decided to keep the ledger in SQLite until next Friday.\nAND user_id = 1\nrequirements.txt",
        "That's great, Mel! You're so right. I'm so happy for you.",
    ] * 3
    at = {"created_at": "2023-05-08T09:00:00Z"}
    sent = [{"role": ("user", "assistant")[n % 2], "content": text} | at for n, text in enumerate(said)]
    store(db, user, "work", sent, "append_messages")
    call(db, "set_user_settings", user, {"compaction_ratio": 5, "session_summary_tokens": 1000})
    lines = call(db, "summarize_session", user, "work")["summary"].split("\n")
    assert lines[0] == "8 May 2023:" and {line.partition(": ")[2] for line in lines[1:]} == {
        "I moved to Bergen on 7 May 2023 with Ottilie.",
        "Deadline: 31 March for the ledger",
        "We decided to keep the ledger in SQLite until 19 May 2023.",
    }
    compacted = call(db, "compact_session", user, "work", 0)["summary"].split("\n")
    assert set(compacted[1:]) <= set(lines[1:]) and len(compacted) > 1


def test_a_paused_session_rests(db: Db, user: str, clock: Callable[[str], None]) -> None:
    clock("2026-03-01T12:00:00Z")
    talk(db, user, "s", 40)
    for _ in range(2):
        call(db, "pause_session", user, "s")
    clock("2027-03-01T12:00:00Z")
    run_job(db, "compaction")
    run_job(db, "expiry")
    assert counting(db, user, "s") == [] and call(db, "session_info", user, "s")["status"] == "paused"
    assert table(db, "list_sessions", user, p_status="paused", columns="session") == [("s",)]
    persist(db, user, "s", "Back again.")
    assert call(db, "session_info", user, "s")["status"] == "active"
    run_job(db, "compaction")
    assert counting(db, user, "s")
    call(db, "pause_session", user, "s")
    call(db, "open_session", user, "s", "small")
    clock("2028-03-01T12:00:00Z")
    run_job(db, "expiry")
    assert call(db, "session_info", user, "s")["status"] == "expired"
    with raises("PM005"):
        call(db, "pause_session", user, "s")
