"""Shorter forms of objects: how long, what they keep, what they say that they lack; large outputs and what is found in them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from agents import Agent
from calls import Db, call, one, run_job, table

WORDS = "handler worker queue payment order customer cache shard replica leader index request".split()


def code(functions: int = 60) -> str:
    """A module of a few thousand tokens, each function with something that is in no other."""
    return "import os\nfrom app.core import Base\n\n" + "\n\n".join(
        f'def charge_order_{n}(amount: int) -> int:\n    """Charges an order."""\n    limit_{n} = {1000 + n * 7}\n'
        f'    if amount > limit_{n}:\n        raise ValueError("E{4000 + n}: over the limit of shard {n}")\n    return amount - {n}'
        for n in range(functions)
    )


def log(lines: int, odd: dict[int, str] | None = None) -> str:
    return "\n".join(
        (odd or {}).get(n)
        or f"2026-03-13T10:{n // 60 % 60:02}:{n % 60:02}Z INFO {WORDS[n % 12]}.{WORDS[n * 7 % 12]} done in {n * 13 % 977} ms"
        for n in range(lines)
    )


JSON = json.dumps([{"id": n, "name": f"customer-{n}", "total": n * 31.5, "tags": ["a", "b"]} for n in range(120)])
TABLE = "id,name,total,city\n" + "\n".join(f"{n},customer_{n},{n * 31},town{n % 9}" for n in range(300))
PROSE = "# Report\n\n" + "\n\n".join(
    f"Chapter {n} tells how the harbour was built. It took {n * 17} days and many hands. Nobody remembers the names of those who "
    f"carried the stones, but the bill of {n * 1130} crowns was kept in the archive of the town."
    for n in range(60)
)
TEXTS = {
    "code": code(),
    "log": log(400, {200: "ERROR disk /dev/sdb1 failed: E_IO_77"}),
    "json": JSON,
    "table": TABLE,
    "prose": PROSE,
}


def forms(db: Db, user: str, *fidelities: int) -> list[dict[str, Any]]:
    """Of the user's newest object, at each fidelity."""
    query = """select to_jsonb(f) from _memoir.users u
        cross join lateral (select * from _memoir.memory_store s where s.user_id = u.user_id and s.is_object
          order by s.recorded_at desc, s.memory_id limit 1) m
        cross join lateral _memoir.object_forms(m.user_id, array_fill(m.memory_id, array[cardinality(%s::smallint[])]), %s::smallint[]) f
        where u.external_id = %s"""
    return [form for (form,) in db.execute(query, [list(fidelities), list(fidelities), user])]


@pytest.mark.parametrize("kind", TEXTS)
def test_forms_have_their_size_and_tell_their_losses(db: Db, user: str, kind: str) -> None:
    text = TEXTS[kind]
    sent = Agent(db, user).calls("Bash", {"command": f"show {kind}"}, text)
    detailed, compact, stub = forms(db, user, 1, 2, 3)
    assert detailed["token_count"] < 0.36 * sent["tokens"] + 120
    assert compact["token_count"] < 0.06 * sent["tokens"] + 220
    assert stub["token_count"] < 200
    for form in (detailed, compact, stub):
        body = form["content"]
        assert re.match(r"\[(detailed, \d+|compact, \d+|stub) of [\d,]+ tokens, object [0-9a-f]{8} · ", body), body
        assert "memory_query(" in body and "Left out: " in body
        assert all(str(entity) in body for entity in form["can_answer"])
        assert not any(str(entity) in body for entity in form["losses"])
        # Nothing is neither kept nor declared.
        assert len(form["losses"]) + len(form["can_answer"]) > 50
    assert set(detailed["losses"]) <= set(stub["losses"]) and set(compact["losses"]) <= set(stub["losses"])


def test_code_keeps_signatures_and_logs_their_errors(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/pay.py"}, TEXTS["code"])
    [detailed] = forms(db, user, 1)
    assert "from app.core import Base" in detailed["content"] and detailed["content"].count("def charge_order_") > 30
    agent.calls("Bash", {"command": "journalctl"}, TEXTS["log"])
    [compact] = forms(db, user, 2)
    assert "ERROR disk /dev/sdb1 failed: E_IO_77" in compact["content"] and "×" in compact["content"]


def test_a_search_keeps_the_files_that_it_found(db: Db, user: str) -> None:
    found = [
        f"src/part_{n % 9}/handler_{n % 9}.py:{n * 7}:    if order_{n} > limit_{n}: raise Over(order_{n})"
        for n in range(90)
    ]
    Agent(db, user).calls("Grep", {"pattern": "order", "path": "src"}, "\n".join(found))
    compact, stub = forms(db, user, 2, 3)
    assert all(f"src/part_{n}/handler_{n}.py ×10" in compact["content"] for n in range(9))
    assert "src/part_0/handler_0.py ×10, src/part_1/handler_1.py ×10" in stub["content"]
    assert "Left out: all but these files." in stub["content"] and stub["token_count"] < 200


def test_a_list_of_paths_is_a_search(db: Db, user: str) -> None:
    found = [f"./src/area_{n // 9}/module_{n}.py" for n in range(400)]
    Agent(db, user).calls("Glob", {"pattern": "**/*.py"}, "Found 400 files\n" + "\n".join(found))
    compact, stub = forms(db, user, 2, 3)
    assert compact["content"].count("./src/area_") > 8 and "./src/area_0/module_0.py, " in stub["content"]
    one_of_many = "\n".join(f"{n}.{n * 7 % 13}" for n in range(600))
    Agent(db, user).calls("Bash", {"command": "cat measured"}, one_of_many)
    assert "but these files" not in forms(db, user, 3)[0]["content"]


def test_what_was_edited_later_is_kept(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/pay.py"}, TEXTS["code"])
    assert "limit_31 = 1217" not in forms(db, user, 2)[0]["content"]
    agent.calls(
        "Edit", {"file_path": "/w/pay.py", "old_string": "    limit_31 = 1217", "new_string": "    limit_31 = 1"}, "ok"
    )
    assert "limit_31 = 1217" in forms(db, user, 2)[0]["content"]


def test_what_is_forgotten_stands_in_no_form(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Bash", {"command": "cat notes"}, "The gate code of Peter Brown is 4711.\n" + PROSE)
    assert "4711" in forms(db, user, 1)[0]["content"]
    memory = call(db, "remember", user, "The gate code is 4711.", session="s", source_turns=[2], actor="tool")[
        "memory_id"
    ]
    call(db, "forget", user, memory)
    assert all("4711" not in form["content"] for form in forms(db, user, 1, 2, 3))


def test_stored_forms_stay_until_the_next_moment(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/pay.py"}, TEXTS["code"])
    keep = """select _memoir.keep_forms(m.user_id, array[m.memory_id], '{3}') from _memoir.users u
        join _memoir.memory_store m using (user_id) where is_object and u.external_id = %s"""
    [tokens] = one(db, keep, user)
    [before] = forms(db, user, 3)
    assert before["token_count"] == tokens
    agent.calls("Edit", {"file_path": "/w/pay.py"}, "ok")
    assert forms(db, user, 3) == [before]
    one(db, keep, user)
    assert "edited since" in forms(db, user, 3)[0]["content"]


def passages(db: Db, user: str, question: str) -> list[tuple[Any, ...]]:
    """From the large outputs of the user's session."""
    query = """select p.first_line, p.last_line, p.body, p.score from _memoir.sessions s join _memoir.users u using (user_id),
        _memoir.large_passages(s.user_id, s.session_id, %s, 3, 'normal') p where u.external_id = %s"""
    return db.execute(query, [question, user]).fetchall()


def test_planted_facts_in_a_large_output_are_found(db: Db, user: str) -> None:
    facts = {
        3000: (
            "the billing job of tenant acme stopped with exit status 137",
            "Which exit status did the billing job have?",
            "137",
        ),
        5111: (
            "volume /mnt/data7 remounted read-only by node-12",
            "Which volume was remounted read-only?",
            "/mnt/data7",
        ),
        7070: (
            "rotated signing certificate, next renewal 2027-04-19",
            "When is the next renewal of the certificate?",
            "2027-04-19",
        ),
        9123: (
            "feature flag dark_checkout enabled for 12.5 percent",
            "For how many percent is dark_checkout enabled?",
            "12.5",
        ),
    }
    text = log(17000, {line: f"2026-03-13T11:00:00Z INFO {fact}" for line, (fact, _, _) in facts.items()})
    assert len(text) > 900_000
    Agent(db, user).calls("Bash", {"command": "cat all.log"}, text)
    for line, (_, question, answer) in facts.items():
        first, last, body, score = passages(db, user, question)[0]
        assert first <= line + 1 <= last and answer in body and 0.5 < score <= 1
    assert len(forms(db, user, 2)[0]["content"]) < 40_000


def test_a_large_output_makes_few_things_to_embed(db: Db, user: str) -> None:
    agent = Agent(db, user)
    for n in range(4):
        agent.calls("Bash", {"command": f"cat {n}.log"}, log(2700, {n: f"part {n}"}))
    run_job(db, "scan")
    counted = (
        "select count(*) from memoir.claim_embeddings(1000) join _memoir.users using (user_id) where external_id = %s"
    )
    waiting = one(db, counted, user)
    # 135 MB make fewer than 20,000: one for 6,750 bytes.
    assert 4 <= waiting < 4 * len(log(2700)) / 6750


def test_middle_of_a_large_output_is_indexed(db: Db, user: str) -> None:
    text = log(4000, {2000: "2026-03-13T11:00:00Z ERROR the quokka sensor of hall nine failed"})
    Agent(db, user).calls("Bash", {"command": "cat all.log"}, text)
    query = "quokka sensor failed"
    assert not any("quokka" in found for (found,) in table(db, "recall", user, query, columns="content"))
    assert "quokka" not in forms(db, user, 1)[0]["content"]
    assert run_job(db, "scan")
    assert any("quokka" in found for (found,) in table(db, "recall", user, query, columns="content"))
    assert "quokka" in forms(db, user, 1)[0]["content"]


def test_a_secret_in_the_middle_of_a_large_output_is_found(db: Db, user: str) -> None:
    text = log(4000, {2000: "connecting with password=Tr0ub4dor&3xyz to the store"})
    sent = Agent(db, user).calls("Bash", {"command": "cat all.log"}, text)
    assert sent["warnings"] == []
    run_job(db, "scan")
    [turn] = [t for (t,) in table(db, "history", user, "s") if t["turn_index"] == 2] or [{"sensitivity": "secret"}]
    assert turn["sensitivity"] == "secret" and forms(db, user, 1, 3) == []


PLANTED = [
    ("{who} rotated the key of vault {n} after {m} failed logins", "How many failed logins came before vault {n} was rotated?", "{m}"),
    ("export job {who}-{n} wrote {m} rows to /srv/out/{who}_{n}.parquet", "Where did export job {who}-{n} write its rows?", "/srv/out/{who}_{n}.parquet"),
    ("ERROR pump {n} reports code PX-{m}", "Which code does pump {n} report?", "PX-{m}"),
    ("{who}: retention of bucket b{n} is now {m} days", "What is the retention of bucket b{n}?", "{m} days"),
    ("def settle_{who}_{n}(amount): return amount - {m}", "What does settle_{who}_{n} subtract?", "amount - {m}"),
    ("customer {n} ({who}) asked to be called back at extension {m}", "At which extension does customer {n} want to be called back?", "{m}"),
]  # fmt: skip


@pytest.mark.acceptance
def test_facts_in_outputs_of_a_megabyte_are_found(db: Db, user: str) -> None:
    """At least 95 of 100, one in each part of the text."""
    agent, missed, asked = Agent(db, user), [], 0
    for output in range(5):
        facts = {}
        for n in range(20):
            said, question, answer = (
                text.format(who=WORDS[(n + output) % 12], n=100 * output + n + 17, m=7000 + 31 * n + output)
                for text in PLANTED[n % len(PLANTED)]
            )
            facts[800 * n + 137 * output + 40] = (f"2026-03-13T11:00:00Z INFO {said}", question, answer)
        agent.calls(
            "Bash", {"command": f"cat {output}.log"}, log(17000, {line: fact for line, (fact, _, _) in facts.items()})
        )
        for line, (_, question, answer) in facts.items():
            asked += 1
            if not any(answer in body for _, _, body, _ in passages(db, user, question)):
                missed.append((output, line, question))
    assert len(missed) <= 0.05 * asked, missed


@pytest.mark.extended
@pytest.mark.acceptance
def test_logs_make_few_embeddings(db: Db, user: str) -> None:
    agent = Agent(db, user)
    for n in range(150):
        agent.calls("Bash", {"command": f"cat {n}.log"}, log(17000, {n: f"part {n}"}))
    run_job(db, "scan", 3600)
    counted = "select count(*) from _memoir.search_items join _memoir.users using (user_id) where embeddable and external_id = %s"
    waiting = one(db, counted, user)
    assert waiting < 20_000
