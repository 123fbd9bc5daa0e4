"""Shorter forms of objects: how long, what they keep, what they say that they lack; large outputs and what is found in them."""

import json
import re

import pytest
from agents import Agent
from calls import Db, call, recalled, run_job
from internals import keep_forms, large_passages, own_rows, read_forms

WORDS = "handler worker queue payment order customer cache shard replica leader index request".split()


def log(lines: int, odd: dict[int, str] | None = None) -> str:
    return "\n".join(
        (odd or {}).get(n)
        or f"2026-03-13T10:{n // 60 % 60:02}:{n % 60:02}Z INFO {WORDS[n % 12]}.{WORDS[n * 7 % 12]} done in {n * 13 % 977} ms"
        for n in range(lines)
    )


# A few thousand tokens each, with something in each part that is in no other.
TEXTS = {
    "code": "import os\nfrom app.core import Base\n\n"
    + "\n\n".join(
        f'def charge_order_{n}(amount: int) -> int:\n    """Charges an order."""\n    limit_{n} = {1000 + n * 7}\n'
        f'    if amount > limit_{n}:\n        raise ValueError("E{4000 + n}: over the limit of shard {n}")\n    return amount - {n}'
        for n in range(60)
    ),
    "log": log(400, {200: "ERROR disk /dev/sdb1 failed: E_IO_77"}),
    "json": json.dumps([{"id": n, "name": f"customer-{n}", "total": n * 31.5, "tags": ["a", "b"]} for n in range(120)]),
    "table": "id,name,total,city\n" + "\n".join(f"{n},customer_{n},{n * 31},town{n % 9}" for n in range(300)),
    "prose": "# Report\n\n"
    + "\n\n".join(
        f"Chapter {n} tells how the harbour was built. It took {n * 17} days and many hands. Nobody remembers the names of those "
        f"who carried the stones, but the bill of {n * 1130} crowns was kept in the archive of the town."
        for n in range(60)
    ),
}


def body(db: Db, user: str, fidelity: int) -> str:
    """The form of the user's newest object."""
    return str(read_forms(db, user, fidelity)[0]["content"])


@pytest.mark.parametrize("kind", TEXTS)
def test_forms_have_their_size_and_tell_their_losses(db: Db, user: str, kind: str) -> None:
    sent = Agent(db, user).calls("Bash", {"command": f"show {kind}"}, TEXTS[kind])
    detailed, compact, stub = read_forms(db, user, 1, 2, 3)
    # Names and quotations come on top: of short ones more tokens than characters.
    assert detailed["token_count"] < 0.4 * sent["tokens"] + 120 and stub["token_count"] < 0.11 * sent["tokens"] + 120
    assert compact["token_count"] < 0.24 * sent["tokens"] + 220
    for form in (detailed, compact, stub):
        text = form["content"]
        assert re.match(r"\[(detailed, \d+|compact, \d+|stub) of [\d,]+ tokens, object [0-9a-f]{8} · ", text), text
        assert "memory_query(" in text and "Left out: " in text
        assert all(str(entity) in text for entity in form["can_answer"])
        assert not any(str(entity) in text for entity in form["losses"])
        # Nothing is neither kept nor declared.
        assert len(form["losses"]) + len(form["can_answer"]) > 50
    assert set(detailed["losses"]) | set(compact["losses"]) <= set(stub["losses"])


def test_code_keeps_signatures_and_edits(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/pay.py"}, TEXTS["code"])
    detailed = body(db, user, 1)
    assert "from app.core import Base" in detailed and detailed.count("def charge_order_") > 30
    assert "limit_31 = 1217" not in body(db, user, 2)
    edit = {"file_path": "/w/pay.py", "old_string": "    limit_31 = 1217", "new_string": "    limit_31 = 1"}
    agent.calls("Edit", edit, "ok")
    assert "limit_31 = 1217" in body(db, user, 2)
    agent.calls("Bash", {"command": "journalctl"}, TEXTS["log"])
    assert "ERROR disk /dev/sdb1 failed: E_IO_77" in body(db, user, 2)


def test_shorter_forms_keep_names(db: Db, user: str) -> None:
    """What an agent writes next names what it read long before."""
    text = "\n".join(
        f"    {n}\tdef {'settle_invoice' if n == 200 else 'x'}(a):  # {'uses ChargeQueue, see docs/ledger.md' if n == 300 else ''}"
        + ('\n        parser.add("--dry", help="Only say what it would do")' if n == 250 else "")
        for n in range(400)
    )
    Agent(db, user).calls("Read", {"file_path": "/w/settle.py"}, text)
    for fidelity in (1, 2, 3):
        form = body(db, user, fidelity)
        assert all(name in form for name in ("settle_invoice", "ChargeQueue", "docs/ledger.md")), form
        assert fidelity == 3 or "Only say what it would do" in form


def test_searches_keep_the_files_that_they_found(db: Db, user: str) -> None:
    agent = Agent(db, user)
    line = "src/part_{0}/handler_{0}.py:{1}:    if order_{1} > limit_{1}: raise Over(order_{1})"
    found = "\n".join(line.format(n % 9, n) for n in range(90))
    agent.calls("Grep", {"pattern": "order", "path": "src"}, found)
    assert all(f"src/part_{n}/handler_{n}.py ×10" in body(db, user, 2) for n in range(9))
    stub = body(db, user, 3)
    files = "src/part_0/handler_0.py ×10, src/part_1/handler_1.py ×10"
    assert files in stub and "Left out: all but these names." in stub
    paths = "\n".join(f"./src/area_{n // 9}/module_{n}.py" for n in range(400))
    agent.calls("Glob", {"pattern": "**/*.py"}, f"Found 400 files\n{paths}")
    assert body(db, user, 2).count("./src/area_") > 8 and "./src/area_0/module_0.py, " in body(db, user, 3)
    agent.calls("Bash", {"command": "cat measured"}, "\n".join(f"{n}.{n * 7 % 13}" for n in range(600)))
    assert "but these names" not in body(db, user, 3)


def test_forgotten_text_stands_in_no_form(db: Db, user: str) -> None:
    secret = "The gate code of Peter Brown is 4711.\n"
    Agent(db, user).calls("Bash", {"command": "cat notes"}, secret + TEXTS["prose"])
    assert "4711" in body(db, user, 1)
    named = {"session": "s", "source_turns": [2], "actor": "tool"}
    call(db, "forget", user, call(db, "remember", user, "The gate code is 4711.", **named)["memory_id"])
    assert all("4711" not in form["content"] for form in read_forms(db, user, 1, 2, 3))


def test_stored_forms_stay_until_the_next_moment(db: Db, user: str) -> None:
    agent = Agent(db, user)
    agent.calls("Read", {"file_path": "/w/pay.py"}, TEXTS["code"])
    [tokens] = keep_forms(db, user, 3)
    [before] = read_forms(db, user, 3)
    assert before["token_count"] == tokens
    agent.calls("Edit", {"file_path": "/w/pay.py"}, "ok")
    assert read_forms(db, user, 3) == [before]
    keep_forms(db, user, 3)
    assert "edited since" in body(db, user, 3)


PLANTED = [
    ("{who} rotated the key of vault {n} after {m} failed logins", "How many failed logins came before vault {n} was rotated?", "{m}"),
    ("export job {who}-{n} wrote {m} rows to /srv/out/{who}_{n}.parquet", "Where did export job {who}-{n} write its rows?", "/srv/out/{who}_{n}.parquet"),
    ("ERROR pump {n} reports code PX-{m}", "Which code does pump {n} report?", "PX-{m}"),
    ("{who}: retention of bucket b{n} is now {m} days", "What is the retention of bucket b{n}?", "{m} days"),
    ("def settle_{who}_{n}(amount): return amount - {m}", "What does settle_{who}_{n} subtract?", "amount - {m}"),
    ("customer {n} ({who}) asked to be called back at extension {m}", "At which extension does customer {n} want to be called back?", "{m}"),
]  # fmt: skip


@pytest.mark.parametrize("outputs", [1, pytest.param(5, marks=pytest.mark.acceptance)])
def test_facts_in_outputs_of_a_megabyte_are_found(db: Db, user: str, outputs: int) -> None:
    """At least 95 of 100, one in each part of the text."""
    agent, missed, asked = Agent(db, user), [], 0
    session = call(db, "session_info", user, "s")["session_id"]
    for output in range(outputs):
        facts = {}
        for n in range(20):
            values = {"who": WORDS[(n + output) % 12], "n": 100 * output + n + 17, "m": 7000 + 31 * n + output}
            said, question, answer = (text.format(**values) for text in PLANTED[n % len(PLANTED)])
            facts[800 * n + 137 * output + 40] = (f"2026-03-13T11:00:00Z INFO {said}", question, answer)
        text = log(17000, {line: fact for line, (fact, _, _) in facts.items()})
        assert len(text) > 900_000
        agent.calls("Bash", {"command": f"cat {output}.log"}, text)
        for line, (_, question, answer) in facts.items():
            asked += 1
            found = [
                (first, last) for first, last, said in large_passages(db, user, session, question) if answer in said
            ]
            if not any(first <= line + 1 <= last for first, last in found):
                missed.append((output, line, question))
    assert len(missed) <= 0.05 * asked, missed
    assert len(body(db, user, 2)) < 40_000


@pytest.mark.parametrize(
    ("outputs", "lines", "most"),
    # 135 MB make fewer than 20,000 things to embed: one for 6,750 bytes.
    [(4, 2700, 80), pytest.param(150, 17000, 20_000, marks=[pytest.mark.extended, pytest.mark.acceptance])],
)
def test_large_outputs_make_few_things_to_embed(db: Db, user: str, outputs: int, lines: int, most: int) -> None:
    agent = Agent(db, user)
    for n in range(outputs):
        agent.calls("Bash", {"command": f"cat {n}.log"}, log(lines, {n: f"part {n}"}))
    run_job(db, "scan", 3600)
    assert outputs <= len(own_rows(db, user, "search_items", "item_no", "embeddable")) < most


def test_middle_of_a_large_output_is_indexed(db: Db, user: str) -> None:
    text = log(4000, {2000: "2026-03-13T11:00:00Z ERROR the quokka sensor of hall nine failed"})
    Agent(db, user).calls("Bash", {"command": "cat all.log"}, text)
    for is_scanned in (False, True):
        assert not is_scanned or run_job(db, "scan")
        assert ("quokka" in str(recalled(db, user, "quokka sensor failed"))) == is_scanned
        assert ("quokka" in body(db, user, 1)) == is_scanned


def test_secret_in_the_middle_of_a_large_output_is_found(db: Db, user: str) -> None:
    text = log(4000, {2000: "connecting with password=Tr0ub4dor&3xyz to the store"})
    assert Agent(db, user).calls("Bash", {"command": "cat all.log"}, text)["warnings"] == []
    run_job(db, "scan")
    assert "Tr0ub4dor" not in str(call(db, "compile_context", user, "s", "Which password connects to the store?"))
    assert read_forms(db, user, 1, 3) == []
