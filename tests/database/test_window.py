"""The managed window: what a session of an agent shows of its past. tests/property/test_agent_loops.py checks over generated loops that
lists are valid, within their budget, name every step and change at announced moments alone."""

import json
import re
from collections.abc import Iterable
from typing import Any

import psycopg
import pytest
from calls import ANSWER, Db, call, embed_waiting, messages, one, persist, store, table
from loops import append, code, compiled, read, same_beginning, shown_calls, step, text_of
from parallel import beside, until
from psycopg.types.json import Jsonb
from request_rules import unpaired
from servers import connect

WAITS = "exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"


def open_session(db: Db, user: str, window: int, **settings: float) -> None:
    given = {"context_window": window, "response_tokens": window // 16}
    call(db, "open_session", user, "s", **given, settings={"window_line_steps": 20} | settings)
    append(db, user, messages("Find out why the import is slow."))


def read_parts(db: Db, user: str, numbers: Iterable[int], size: int) -> dict[str, Any]:
    """Reads a file of its own for each number, and compiles after each; the last list."""
    for n in numbers:
        append(db, user, read(n, f"src/part_{n}.py", code(n, size)))
        made = compiled(db, user)
    return made


def asks(answer: str, question: str) -> list[dict[str, Any]]:
    """The end of an exchange, and what the next one begins with."""
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]


def everything(made: dict[str, Any]) -> str:
    return "\n".join(map(text_of, made["messages"]))


def of_call(made: dict[str, Any], number: int) -> str:
    """The result of a call as the list shows it."""
    return next(text_of(m) for m in made["messages"] if m.get("tool_call_id") == f"call_{number}")


def pressure(db: Db, user: str) -> dict[str, Any]:
    return dict(call(db, "session_pressure", user, "s"))


def test_huge_results_are_born_reduced(db: Db, user: str) -> None:
    open_session(db, user, 128_000)
    for n in range(6):
        made = read_parts(db, user, [n], 100_000 if n in (2, 4) else 8_000)
    shown = everything(made)
    assert all(code(n, 8_000) in shown for n in (0, 1, 3, 5)), "the small ones are whole"
    assert "src/part_2.py" in shown and "shows it whole" in shown and made["tokens"] < 60_000


def test_a_result_without_a_form_is_not_due_again(db: Db, user: str) -> None:
    """A secret is withheld, not shortened, so a compile has nothing to move."""
    open_session(db, user, 10_000)
    append(db, user, read(1, "src/key.py", code(1, 4_000)))
    assert pressure(db, user)["due"] == "born"
    append(db, user, read(2, "src/key.pem", "-----BEGIN RSA PRIVATE KEY-----\n" + code(2, 4_000)))
    compiled(db, user)
    assert pressure(db, user)["due"] is None


def test_budget_below_the_window_is_used(db: Db, user: str) -> None:
    """Content that does not fit whole is there shorter, with a reason."""
    open_session(db, user, 128_000)
    read_parts(db, user, range(40), 6_000)
    for budget in (16_000, 30_000, 60_000):
        made = compiled(db, user, budget=budget)
        shown = everything(made)
        assert made["tokens"] <= budget and not unpaired(made["messages"])
        assert made["tokens"] > 0.4 * budget or all(f"part_{n}.py" in shown for n in range(40))
    rows = table(db, "explain_context", user, "s", budget=30_000, columns="fidelity, reason")
    shorter = [reason for fidelity, reason in rows if fidelity != "full"]
    assert shorter and all(shorter)


def test_edited_files_and_old_arguments_are_reduced(db: Db, user: str) -> None:
    open_session(db, user, 64_000)
    text = code(1000, 16_000)
    append(db, user, read(500, "src/a.py", code(1, 12_000)))
    append(db, user, step(501, "Edit", {"file_path": "src/a.py", "old_string": "x", "new_string": "y"}, "Updated."))
    append(db, user, step(502, "Write", {"file_path": "src/new.py", "content": text}, "File created."))
    made = read_parts(db, user, range(10), 9_000)
    assert "edited since, in turn 4" in of_call(made, 500) and len(of_call(made, 500)) < 1_300
    writing = [m for m in made["messages"] if "call_502" in shown_calls([m])]
    for arguments in (json.loads(m["tool_calls"][0]["function"]["arguments"]) for m in writing):
        assert arguments["file_path"] == "src/new.py" and len(arguments["content"]) < len(text) / 2
    assert text not in everything(made)


@pytest.mark.acceptance
def test_most_calls_keep_the_list(db: Db, user: str) -> None:
    open_session(db, user, 32_000)
    kept, before, calls = 0, [], 90
    for n in range(calls):
        made = read_parts(db, user, [n], 1_100)["messages"]
        kept += same_beginning(before, made)
        before = made
    assert kept >= 0.9 * calls and 0 < pressure(db, user)["moments"] < 12


def test_earlier_recall_stays_until_a_rewrite(db: Db, user: str) -> None:
    """It stands before all steps of that exchange: without it none of them would be in a provider's cache."""
    lives = "lives in the quokka service"
    append(db, user, messages(f"The importer {lives}.", "Noted."), "before")
    open_session(db, user, 128_000)
    append(db, user, asks("Where?", "In the quokka service, please."))
    before: list[dict[str, Any]] = []
    for n in range(9):
        if n % 3 == 2:
            append(db, user, asks("Done.", f"And part {n}?"))
        made = read_parts(db, user, [n], 3_000)
        assert same_beginning(before, made["messages"]), f"call {n}"
        before = made["messages"]
    assert "<memoir-recall>" in everything(made) and lives in everything(made) and pressure(db, user)["moments"] == 0
    append(db, user, [{"role": "assistant", "content": "Done."}])
    assert same_beginning(before, compiled(db, user, "What is left?")["messages"])
    assert lives not in everything(read_parts(db, user, range(9, 60), 6_000))


def test_zone_that_was_just_left_is_no_moment_again(db: Db, user: str) -> None:
    """What people and assistants say fills half the window and can't be made shorter; results come on top of it."""
    open_session(db, user, 32_000)
    append(db, user, asks(code(999, 44_000), "Go on."))
    zones = 0
    for n in range(24):
        read_parts(db, user, [n], 2_500)
        last = pressure(db, user)["last_moment"]
        zones += bool(last and last["kind"] == "zone" and last["turn"] == 5 + 2 * n)
    assert 1 <= zones <= 3


def test_zones_are_settings(db: Db, user: str) -> None:
    open_session(db, user, 32_000)
    append(db, user, asks(code(999, 60_000), "Go on."))
    compiled(db, user)
    fill = pressure(db, user)["fill"]
    assert 0.5 <= fill < 0.7
    zones = []
    for settings in ({}, {"window_caution": fill + 0.05}, {"window_emergency": fill - 0.05}):
        call(db, "set_user_settings", user, Jsonb(settings))
        zones.append(pressure(db, user)["zone"])
    assert zones == ["caution", "normal", "emergency"]


def test_steps_become_lines_first(db: Db, user: str) -> None:
    open_session(db, user, 4_000)
    seen_lines, left = False, None
    for n in range(0, 480, 8):
        append(db, user, [m for k in range(n, n + 8) for m in read(k, f"src/part_{k}.py", code(k, 300))])
        shown = everything(compiled(db, user))
        left = re.search(r"(\d+) earlier steps \(turns 0 to (\d+)\) are kept and not shown", shown)
        first = int(left[2]) // 2 if left else 0
        missing = [k for k in range(first, n + 8) if f"part_{k}.py" not in shown]
        assert not missing, f"at {n} neither shown nor named: {missing}"
        assert left is None or seen_lines
        seen_lines = seen_lines or "Earlier steps, a line each" in shown
    assert left is not None


def test_objects_that_left_are_listed(db: Db, user: str) -> None:
    open_session(db, user, 2_400)
    for n in range(0, 168, 8):
        append(db, user, [m for k in range(n, n + 8) for m in read(k, f"src/part_{k}.py", code(k, 3_000))])
        compiled(db, user)
    listed = table(db, "list_objects", user, "s", p_limit=200, columns="content, fidelity")
    assert len(listed) == pressure(db, user)["objects"] == 168
    shown = everything(compiled(db, user))
    for content, fidelity in listed:
        name = re.search(r"part_\d+\.py", content)
        assert name and (fidelity == "not shown" or name[0] in shown), (content, fidelity)
    by_fidelity = pressure(db, user)["by_fidelity"]
    assert sum(by_fidelity.values()) == 168 and by_fidelity["line"] > 0 and by_fidelity["not shown"] > 0


def test_lines_name_files_and_nothing_forgotten(db: Db, user: str) -> None:
    open_session(db, user, 4_000)
    found = "\n".join(f"src/part_{n % 3}.py:{n}:    if order_{n} > limit_{n}: raise Over(order_{n})" for n in range(60))
    append(db, user, step(500, "Grep", {"pattern": "Over", "path": "src"}, found))
    append(db, user, step(501, "Bash", {"command": "make notes"}, "The gate code of Peter Brown is 4711."))
    shown = everything(read_parts(db, user, range(1, 16), 900))
    line = r"- turn 2: Grep Over in src → object \w{8}, \d+ tokens; src/part_0\.py ×20, src/part_1\.py ×20, src/part_2\.py ×20"
    notes = r"- turn 4: Bash .*make notes → "
    assert re.search(line, shown) and re.search(notes + "The gate code of Peter Brown is 4711.", shown)
    named = {"session": "s", "source_turns": [4], "actor": "tool"}
    call(db, "forget", user, call(db, "remember", user, "The gate code is 4711.", **named)["memory_id"])
    shown = everything(compiled(db, user))
    assert "4711" not in shown and re.search(notes, shown)


def test_lines_withhold_what_a_secret_call_says(db: Db, user: str) -> None:
    open_session(db, user, 4_000)
    said = "harbour_gate_4711 " + "opens the gate at low water. " * 40
    append(db, user, step(500, "Write", {"file_path": "quay/notes.md", "content": said}, "ok"))
    shown = everything(read_parts(db, user, range(1, 16), 900))
    assert "- turn 2: Write quay/notes.md" in shown and "harbour_gate_4711" in shown
    call(db, "mark_turn", user, "s", 1)
    shown = everything(compiled(db, user))
    assert "- turn 2: " in shown and "harbour_gate_4711" not in shown and "quay/notes.md" not in shown


def test_change_of_goal_is_a_moment_under_pressure(db: Db, user: str, little_vectors: None) -> None:
    open_session(db, user, 32_000)
    asked = {
        "Now the exports, please.": [0, 1, 0, 0],
        "And the parser's tests?": [0.1, 1, 0, 0],
        "Write a poem on tea.": [0, 0, 1, 0],
    }
    kinds = []
    for turn, question in enumerate(asked):
        read_parts(db, user, range(5 * turn, 5 * turn + 5), 6_000)
        append(db, user, asks("Done.", question))
        embed_waiting(db, lambda text: next((v for q, v in asked.items() if q in text), [1, 0, 0, 0]), "little")
        before = pressure(db, user)["moments"]
        compiled(db, user)
        last = pressure(db, user)
        kinds.append(last["last_moment"]["kind"] if last["moments"] > before else None)
    assert kinds[1:] == [None, "goal"]


def test_cold_cache_is_a_moment(db: Db, user: str, clock: Any) -> None:
    clock("2030-05-01 12:00:00+00")
    open_session(db, user, 128_000)
    read_parts(db, user, range(12), 9_000)
    before = pressure(db, user)["moments"]
    clock("2030-05-01 12:30:00+00")
    compiled(db, user)
    now = pressure(db, user)
    assert (now["moments"], now["last_moment"]["kind"]) == (before + 1, "cold")


def test_pins_stay_whole_and_released_objects_become_stubs(db: Db, user: str) -> None:
    open_session(db, user, 64_000)
    read_parts(db, user, range(2), 6_000)
    read_parts(db, user, range(2, 14), 9_000)
    named = dict(table(db, "window_forms", user, "s", columns="turn_index, object"))
    assert call(db, "memory_restore", user, "s", named[2]) == code(0, 6_000)
    assert call(db, "memory_restore", user, "s", named[4], "2-3") == "\n".join(code(1, 6_000).split("\n")[1:3])
    assert call(db, "memory_release", user, "s", [named[4]]) == 1
    call(db, "memory_query", user, "s", "Which limit has the first function?")
    made = read_parts(db, user, range(14, 40), 9_000)
    faults = pressure(db, user)["faults"]
    assert faults["full_restore"] == 2 and faults.get("micro_fault", 0) <= 1
    dropped = [m for m in made["messages"] if m.get("tool_call_id") == "call_1"]
    assert all(m["content"].startswith("[stub") for m in dropped)


def test_page_faults_far_apart_pin_no_longer(db: Db, user: str) -> None:
    """A file that is read again long after its last fault is pinned as long as the first time."""
    open_session(db, user, 64_000)
    read_parts(db, user, range(20), 6_000)
    for n in (20, 50):
        append(db, user, read(n, "src/part_0.py", code(0, 6_000)))
        pins = []
        for later in range(n + 1, n + 26):
            read_parts(db, user, [later], 6_000)
            pins += table(db, "list_objects", user, "s", columns="pinned", p_query="src/part_0.py")
        assert pins[8:11] == [(True,), (False,), (False,)], (n, pins)
    assert pressure(db, user)["faults"]["page_fault"] == 2


def test_page_fault_of_a_line_pins_nothing(db: Db, user: str) -> None:
    """A file that was a line for long is counted as a fault when it is read again, and gets no pin."""
    open_session(db, user, 64_000, window_line_steps=10)
    for n in range(20):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
    table(db, "window_forms", user, "s", p_changed=True, columns="turn_index")
    for number, fidelity in ((0, "line"), (12, "compact")):
        query = {"columns": "fidelity, pinned", "p_query": f"src/part_{number}.py"}
        assert table(db, "list_objects", user, "s", **query) == [(fidelity, False)]
        append(db, user, read(20 + number, f"src/part_{number}.py", code(number, 6_000)))
        assert table(db, "list_objects", user, "s", **query)[0][1] == (fidelity == "compact")
    assert pressure(db, user)["faults"]["page_fault"] == 2


def test_directives_change_the_list_and_are_not_shown(db: Db, user: str) -> None:
    open_session(db, user, 64_000)
    read_parts(db, user, range(4), 6_000)
    names = dict(table(db, "list_objects", user, "s", columns="turn_index, object"))
    said = f"""I keep the first.<memory-window>
anchor: {names[2]}
summarize: {names[4]}: loads and checks parts
collapse: 5-6: nothing of note
drop: 00000000
forget it
</memory-window>"""
    done = append(db, user, step(10, "Bash", {"command": "true"}, "ok", said))
    assert len([warning for warning in done["warnings"] if warning.startswith("directive")]) == 2
    made = read_parts(db, user, range(11, 30), 6_000)
    shown = {message.get("tool_call_id"): text_of(message) for message in made["messages"]}
    assert "memory-window" not in everything(made) and "I keep the first." in everything(made)
    assert "loads and checks parts" in shown.get("call_1", "loads and checks parts")
    assert "nothing of note" in shown.get("call_2", "nothing of note")
    assert "<memory-window>" in call(db, "history", user, "s", 9, 9)["content"]


def test_chat_without_tools_has_no_frame(db: Db, user: str) -> None:
    for n in range(8):
        append(db, user, messages(f"Question {n}", "Yes."))
    assert shown_calls(compiled(db, user, "And now?")["messages"]) == set() and pressure(db, user)["moments"] == 0


def test_what_is_taken_back_leaves_the_list(db: Db, user: str) -> None:
    open_session(db, user, 64_000)
    read_parts(db, user, range(2), 8_000)
    append(db, user, asks("The index is missing.", "Tell Fennimore."))
    append(db, user, asks("Done.", "And now?"))
    made = compiled(db, user)
    assert "Fennimore" in everything(made) and shown_calls(made["messages"]) == {"call_0", "call_1"}
    call(db, "retract_turns", user, "s", 6)
    call(db, "retract_turns", user, "s", 3)
    made = compiled(db, user)
    assert "Fennimore" not in everything(made) and code(1, 8_000) not in everything(made)
    assert shown_calls(made["messages"]) == {"call_0"} and not unpaired(made["messages"])


# Lists that their client keeps ----------------------------------------------------------------------------------------


def test_forms_stay_until_the_next_moment(db: Db, user: str) -> None:
    """The same bytes, with what each part is called."""
    open_session(db, user, 64_000)
    for n in range(20):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 8_000)))
    columns = "turn_index, tool_call_id, call_no, object, fidelity, content, tokens, full_tokens"
    first = table(db, "window_forms", user, "s", columns=columns)
    assert first and first == table(db, "window_forms", user, "s", columns=columns)
    turn, called, number, name, fidelity, content, tokens, full = next(row for row in first if row[4] != "line")
    assert (turn, number) == (2 + 2 * int(called.removeprefix("call_")), 0) and fidelity in ("compact", "stub")
    assert name in content and tokens < full / 3
    append(db, user, read(30, "src/part_30.py", code(30, 600)))
    assert table(db, "window_forms", user, "s", columns=columns)[: len(first)] == first
    assert table(db, "window_forms", user, "s", p_changed=True, columns="turn_index")


def test_forms_move_only_where_that_pays(db: Db, user: str) -> None:
    """A short list is not rewritten, old steps become lines, and a word on an older reading alone changes nothing."""

    def forms() -> dict[int, str]:
        return dict(table(db, "window_forms", user, "s", p_budget=400_000, columns="turn_index, content"))

    open_session(db, user, 200_000, window_prefix_share=0)
    before: dict[int, str] = {}
    for n in range(90):
        # Two files of the step before the last are read again, then others.
        path = n - 40 if n in (60, 61) else n
        append(db, user, read(n, f"src/part_{path}.py", code(path, 14_000)))
        after = forms()
        assert n > 11 or not after
        changed = [turn for turn in sorted({*before, *after}) if before.get(turn) != after.get(turn)]
        # Lines stand at the top; else what was whole is the first that changes.
        assert not changed or changed[0] == 0 or changed[0] not in before, (n, changed)
        # Lines that are merged stay for the prompt cache, and new ones come behind them.
        assert after.get(0, "").startswith(before.get(0, "").rpartition("\n\n<memoir-steps>")[0])
        before = after
    rows = table(db, "window_forms", user, "s", p_budget=400_000, columns="argument")
    [lines] = [argument for (argument,) in rows if argument]
    assert len(lines) > 30 and len(before) > 10 and sum("- turns " in content for content in before.values()) == 1


@pytest.mark.parametrize(
    ("share", "fixed", "unit", "least", "most"),
    [(0, 0, 0, 3, 9), (0.97, 0, 0, 1, 1), (0.97, 50_000, 0, 2, 9), (0.97, 5_000, 0, 1, 1), (0.97, 5_000, 0.1, 2, 9)],
    ids=str,
)
def test_moves_keep_the_prefix(db: Db, user: str, share: float, fixed: int, unit: float, least: int, most: int) -> None:
    """All but the first wait until enough of the lists, with what stands before the conversation, was kept. If the
    provider counts a tenth of our tokens for turns (unit), what stands before them weighs ten times as much."""
    open_session(db, user, 200_000, window_prefix_share=share)
    for n in range(90):
        asked, result = read(n, f"src/part_{n}.py", code(n, 8_000))
        prompt = fixed + int(unit * pressure(db, user)["shown_tokens"]) if unit else None
        store(db, user, "s", [asked], "append_messages", p_usage={"prompt_tokens": prompt})
        append(db, user, [result])
        table(db, "window_forms", user, "s", p_budget=400_000, p_fixed=fixed, columns="turn_index")
    assert least <= pressure(db, user)["moments"] <= most


def test_two_callers_move_a_window_once(db: Db, memoir_dsn: str, user: str) -> None:
    """A caller that waited for another's move gets the forms of that move."""
    open_session(db, user, 64_000)
    for n in range(20):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
    moves = "select turn_index, content from memoir.window_forms(%s, 's', p_changed => true)"
    with connect(memoir_dsn) as first, first.transaction():
        moved = first.execute(moves, [user]).fetchall()
        second = beside(lambda: db.execute(moves, [user]).fetchall())
        until(lambda: second.done() or one(first, f"select {WAITS}"))
        assert not second.done()
    assert second.result(30) == moved and pressure(db, user)["moments"] == 1


def test_merged_lines_name_a_file_once(db: Db, user: str) -> None:
    """Files that a merged line names are not named again by those that come behind it."""
    open_session(db, user, 64_000, window_line_steps=4)
    for begin in (0, 80):
        for n in range(begin, begin + 80):
            append(db, user, read(n, f"src/part_{n % 8}.py" if n % 20 else f"src/once_{n}.py", code(n, 2_400)))
        rows = table(db, "window_forms", user, "s", p_changed=True, columns="fidelity, content")
    merged = [line for fidelity, said in rows if fidelity == "line" for line in said.split("\n") if "- turns " in line]
    assert "src/part_3.py" in merged[0] and merged[-1].endswith("…") and "src/part_3.py" not in merged[-1]
    assert [sum(f"src/once_{n}.py" in line for line in merged) for n in (0, 20, 80, 100)] == [1, 1, 1, 1]


def find_shorter(db: Db, user: str) -> dict[str, str]:
    """What stands shorter after a moment: {path: fidelity}."""
    rows = table(db, "window_forms", user, "s", p_budget=100_000, p_changed=True, columns="content, fidelity")
    return {found[0]: fidelity for content, fidelity in rows if (found := re.search(r"src/\w+\.py", content))}


def test_used_results_are_raised(db: Db, user: str) -> None:
    open_session(db, user, 200_000)
    for n in range(8):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
    append(db, user, read(9, "src/part_1.py", "QUAGGA_LIMIT = 12\n" + code(1, 12_000)))
    for n in range(10, 16):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
    before = find_shorter(db, user)
    assert before["src/part_1.py"] in ("compact", "stub")
    said = compiled(db, user, "What is QUAGGA_LIMIT?")
    hits = table(db, "recall", user, "What is QUAGGA_LIMIT?", columns="id::text, content")
    [used] = {item for item, content in hits if "QUAGGA_LIMIT = 12" in content and item in said["items"]}
    assert call(db, "credit_recall", user, said["compile_id"], [used]) >= 1
    assert find_shorter(db, user) == before | {"src/part_1.py": "detailed"}
    assert find_shorter(db, user)["src/part_1.py"] != "full", "once: the next moment does not raise it again"


def logprobs(text: str, surprised: range) -> dict[str, Any]:
    """As a chat completion has them: sure of every word but some, which could have been any of twenty."""
    tokens = []
    for place, word in enumerate(re.findall(r"\S+\s*", text)):
        among = [{"token": word, "logprob": -0.01}, {"token": "x", "logprob": -6.0}]
        if place in surprised:
            among = [{"token": word + "x" * n, "logprob": -3.0} for n in range(20)]
        tokens.append({"token": word, "logprob": among[0]["logprob"], "bytes": None, "top_logprobs": among})
    return {"content": tokens, "refusal": None}


def test_unsure_answer_is_a_fault_of_what_it_lacks(db: Db, user: str) -> None:
    open_session(db, user, 200_000)
    for n in range(16):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
    before = find_shorter(db, user)
    assert before["src/part_3.py"] in ("compact", "stub")
    lacked = next(line for line in reversed(code(3, 12_000).split("\n")) if line.startswith("def "))[4:].split("(")[0]
    sure = "I will now go through all of the files that were read before, one by one, as was asked for by you."
    unsure = f"The limit comes from src/part_3.py where {lacked} is, I think, maybe, or from what calls it, which has one more, or two, and so on and on."
    said, begin = ANSWER | {"content": f"{sure} {unsure}"}, len(sure.split())
    for surprised, faults in (
        (range(0), {}),
        (range(begin, begin + 12), {}),
        (range(begin, 99), {"entropy_triggered": 1}),
    ):
        append(
            db, user, [said | {"logprobs": logprobs(said["content"], surprised)}, {"role": "user", "content": "Well?"}]
        )
        assert pressure(db, user)["faults"] == faults
    told = [m for (m,) in table(db, "history", user, "s") if m["content"] == said["content"]]
    entropy = [message.get("entropy") for message in told]
    assert entropy[0] is None and 1.5 < entropy[1] <= 2.2 < entropy[2] < 3.1
    assert not any("logprobs" in message for message in told), "they are not kept"
    assert find_shorter(db, user) == before | {"src/part_3.py": "detailed"}


@pytest.mark.parametrize(
    ("role", "given", "error"),
    [
        ("user", {"content": []}, "messages[0].logprobs can't stand in a message of role user"),
        ("assistant", 5, "messages[0].logprobs must hold tokens"),
        ("assistant", [{"token": "a", "logprob": 0, "top_logprobs": [{}]}], "messages[0].logprobs must hold tokens"),
        ("assistant", None, None),
        ("assistant", {"content": None}, None),
        ("assistant", [], None),
    ],
)
def test_log_probabilities_are_checked(db: Db, user: str, role: str, given: Any, error: str | None) -> None:
    message = {"role": role, "content": "Hi", "logprobs": given}
    if error:
        with pytest.raises(psycopg.Error, match=re.escape(error)):
            append(db, user, [message])
    else:
        append(db, user, [message])
        assert table(db, "history", user, "s")[0][0]["content"] == "Hi"


def test_lines_of_earlier_steps_refuse_no_list(db: Db, user: str) -> None:
    """An open exchange that fits is sent, whatever is to be said of the steps before it."""

    def call_of(number: str) -> dict[str, Any]:
        return {"id": number, "type": "function", "function": {"name": "look_up", "arguments": '{"q": "Invoice."}'}}

    def exchange(number: str, result: str) -> list[dict[str, Any]]:
        return [
            {"role": "user", "content": "Invoice."},
            {"role": "assistant", "content": None, "tool_calls": [call_of(number)]},
            {"role": "tool", "tool_call_id": number, "content": result},
        ]

    call(db, "open_session", user, "s")
    persist(db, user, "s", *exchange("c1", "Invoice, invoice. " * 400), {"role": "assistant", "content": "0"})
    append(db, user, messages(*exchange("c2", "Invoice.")))
    with pytest.raises(psycopg.Error) as refused:
        call(db, "compile_context", user, "s", p_budget=1)
    needed = json.loads(refused.value.diag.message_detail)["needed"]
    made = call(db, "compile_context", user, "s", p_budget=needed + 10)
    assert [message["role"] for message in made] == ["user", "assistant", "tool"]


def test_a_moved_window_is_due_no_more(db: Db, user: str) -> None:
    """However much less or more lines take than was reckoned: the same state gives the same list."""
    for n in range(30):
        name = f"src/service/handlers/paymentReconciliation{n}/settlementBatchOverview{n}.py"
        text = f"ERROR_{n} in {name}: 결제 정산 배치 {n}가 월말 마감 이전에 종료되지 않았습니다. ticket PAY-{n}77{n}"
        append(db, user, [{"role": "user", "content": f"Look at {n}."}])
        append(db, user, read(n, name, text if n else code(0, 9_000)))
        append(db, user, [{"role": "assistant", "content": f"Batch {n} is late."}])
    for budget in (3_000, 2_400, 1_800, 1_500, 1_200, 1_000, 800, 700, 600, 500, 400):
        first, second = (compiled(db, user, "Which one is late?", budget=budget)["messages"] for _ in range(2))
        assert first == second, budget


def test_too_long_a_form_gives_way_to_an_excerpt(db: Db, user: str) -> None:
    """An excerpt of a form has the line that says what it is one of; where that is too long, it is of the object."""
    append(db, user, messages("Find out why."))
    steps = [read(n, f"src/part_{n}.py", f"BEGIN {code(n, size)}") for n, size in enumerate((150, 9_000, 20))]
    calls = [each for calling, _ in steps for each in calling["tool_calls"]]
    append(db, user, [{**steps[0][0], "tool_calls": calls}, *(result for _, result in steps)])
    seen = set()
    for budget in (3_000, 500, 400, 300, 250, 200):
        shown = of_call(compiled(db, user, budget=budget), 1)
        assert re.match(r"\[compact, \d+ of [\d,]+ tokens, object \w+ |BEGIN ", shown), (budget, shown)
        seen.add(shown[0] + ("…" if "[excerpt: " in shown else ""))
    assert seen == {"[", "[…", "B…"}
