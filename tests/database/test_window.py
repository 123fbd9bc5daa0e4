"""The managed window: what a session of an agent shows of its past."""

import json
import re

import pytest
from calls import Db, call, set_clock, table
from loops import append, code, compiled, read, same_beginning, shown_calls, step, text_of, unpaired


def opened(db: Db, user: str, window: int, session: str = "s", **named: object) -> None:
    call(db, "open_session", user, session, p_context_window=window, p_response_tokens=window // 16, **named)
    append(db, user, [{"role": "user", "content": "Find out why the import is slow."}], session)


def everything(messages: list[dict]) -> str:
    return "\n".join(map(text_of, messages))


@pytest.mark.acceptance
def test_thirty_large_results_stay_named_on_a_large_window(db, user):
    opened(db, user, 128_000)
    for n in range(30):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 20_000)))
        if n % 6 == 5:
            made = compiled(db, user)
            assert made["tokens"] <= made["budget"] and not unpaired(made["messages"])
    shown = everything(made["messages"])
    assert all(f"src/part_{n}.py" in shown for n in range(30))
    assert code(29, 20_000) in shown, "the newest is whole"
    told = {row[0]: row[1:] for row in table(db, "explain_context", user, "s", columns="turn_index, fidelity, reason")}
    assert {fidelity for fidelity, _ in told.values()} >= {"full", "compact"}
    assert all(reason for fidelity, reason in told.values() if fidelity == "compact"), "each says why"


def test_huge_results_are_born_reduced_and_crowd_out_nothing(db, user):
    opened(db, user, 128_000)
    for n in range(6):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 100_000 if n in (2, 4) else 8_000)))
        made = compiled(db, user)
    shown = everything(made["messages"])
    assert all(code(n, 8_000) in shown for n in (0, 1, 3, 5)), "the small ones are whole"
    assert "src/part_2.py" in shown and "shows it whole" in shown
    assert made["tokens"] < 60_000


def test_nothing_leaves_while_there_is_room(db, user):
    """A budget below the window is used: what does not fit whole is there shorter."""
    opened(db, user, 128_000)
    for n in range(40):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
    for budget in (16_000, 30_000, 60_000):
        made = compiled(db, user, budget=budget)
        assert made["tokens"] <= budget and not unpaired(made["messages"])
        shown = everything(made["messages"])
        if "kept and not shown" in shown:
            assert made["tokens"] > 0.4 * budget
        else:
            assert all(f"part_{n}.py" in shown for n in range(40))


def test_a_file_that_is_read_again_stands_once(db, user):
    opened(db, user, 128_000)
    text = code(1, 12_000)
    for n in range(4):
        append(db, user, read(n, "src/same.py", text))
        append(db, user, read(100 + n, f"src/other_{n}.py", code(50 + n, 12_000)))
    for n in range(12):
        append(db, user, read(200 + n, f"src/more_{n}.py", code(90 + n, 6_000)))
        made = compiled(db, user)
    assert everything(made["messages"]).count(text) <= 1


def test_an_edited_file_is_a_stub_that_says_so(db, user):
    opened(db, user, 128_000)
    append(db, user, read(0, "src/a.py", code(1, 12_000)))
    append(db, user, step(1, "Edit", {"file_path": "src/a.py", "old_string": "x", "new_string": "y"}, "Updated."))
    for n in range(2, 30):
        append(db, user, read(n, f"src/b_{n}.py", code(n, 9_000)))
        made = compiled(db, user)
    first = next(message for message in made["messages"] if message.get("tool_call_id") == "call_0")
    assert "edited since, in turn 4" in first["content"] and len(first["content"]) < 600


@pytest.mark.acceptance
def test_the_list_changes_only_at_announced_moments(db, user):
    opened(db, user, 32_000)
    kept, before, moments, calls = 0, [], 0, 90
    for n in range(calls):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 1_100)))
        made = compiled(db, user)["messages"]
        now = call(db, "session_pressure", user, "s")["moments"]
        if same_beginning(before, made):
            kept += 1
        else:
            assert now > moments, f"the past changed at call {n} without a moment"
        before, moments = made, now
    assert kept >= 0.9 * calls
    assert 0 < moments < 12


def test_earlier_recall_stays_until_a_rewrite(db, user):
    """It stands before all steps of that exchange: without it none of them would be in a provider's cache."""
    said = [
        {"role": "user", "content": "The importer lives in the quokka service."},
        {"role": "assistant", "content": "Noted."},
    ]
    append(db, user, said, "before")
    opened(db, user, 128_000)
    append(
        db,
        user,
        [{"role": "assistant", "content": "Where?"}, {"role": "user", "content": "In the quokka service, please."}],
    )
    before = []
    for n in range(9):
        if n % 3 == 2:
            append(db, user, [{"role": "assistant", "content": "Done."}, {"role": "user", "content": f"And part {n}?"}])
        append(db, user, read(n, f"src/part_{n}.py", code(n, 3_000)))
        made = compiled(db, user)
        assert same_beginning(before, made["messages"]), f"call {n}"
        before = made["messages"]
    assert "<memoir-recall>" in everything(before) and "lives in the quokka service" in everything(before)
    assert made["tokens"] <= made["budget"] and call(db, "session_pressure", user, "s")["moments"] == 0
    append(db, user, [{"role": "assistant", "content": "Done."}])
    asked = compiled(db, user, "What is left?")
    assert same_beginning(before, asked["messages"])
    for n in range(9, 60):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
    assert "lives in the quokka service" not in everything(compiled(db, user)["messages"])


def test_a_zone_that_was_just_left_is_no_moment_again(db, user):
    """What people and assistants say fills half the window and can't be made shorter; results come on top of it."""
    opened(db, user, 32_000)
    append(db, user, [{"role": "assistant", "content": code(999, 44_000)}, {"role": "user", "content": "Go on."}])
    zones = 0
    for n in range(24):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 2_500)))
        compiled(db, user)
        last = call(db, "session_pressure", user, "s")["last_moment"]
        zones += bool(last and last["kind"] == "zone" and last["turn"] == 5 + 2 * n)
    assert 1 <= zones <= 3


def test_steps_become_lines_first(db, user):
    opened(db, user, 4_000)
    seen_lines, left = False, None
    for n in range(0, 160, 8):
        append(db, user, [m for k in range(n, n + 8) for m in read(k, f"src/part_{k}.py", code(k, 300))])
        made = compiled(db, user)
        assert made["tokens"] <= made["budget"] and not unpaired(made["messages"])
        shown = everything(made["messages"])
        left = re.search(r"(\d+) earlier steps \(turns 0 to (\d+)\) are kept and not shown", shown)
        first = int(left[2]) // 2 if left else 0
        missing = [k for k in range(first, n + 8) if f"part_{k}.py" not in shown]
        assert not missing, f"at {n} neither shown nor named: {missing}"
        assert left is None or seen_lines
        seen_lines = seen_lines or "Earlier steps, a line each" in shown
    assert left is not None


def test_the_line_of_a_search_names_its_files(db, user):
    opened(db, user, 4_000)
    found = "\n".join(f"src/part_{n % 3}.py:{n}:    if order_{n} > limit_{n}: raise Over(order_{n})" for n in range(60))
    append(db, user, step(0, "Grep", {"pattern": "Over", "path": "src"}, found))
    append(db, user, [m for n in range(1, 16) for m in read(n, f"lib/part_{n}.py", code(n, 900))])
    line = r"- turn 2: Grep Over in src → src/part_0\.py ×20, src/part_1\.py ×20, src/part_2\.py ×20; object \w{8}, \d+ tokens"
    assert re.search(line, everything(compiled(db, user)["messages"]))


def test_what_is_forgotten_stands_in_no_line(db, user):
    opened(db, user, 4_000)
    append(db, user, step(0, "Bash", {"command": "make notes"}, "The gate code of Peter Brown is 4711."))
    append(db, user, [m for n in range(1, 16) for m in read(n, f"src/part_{n}.py", code(n, 900))])
    line = r"- turn 2: Bash .*make notes → "
    assert re.search(line + "The gate code of Peter Brown is 4711.", everything(compiled(db, user)["messages"]))
    named = {"session": "s", "source_turns": [2], "actor": "tool"}
    call(db, "forget", user, call(db, "remember", user, "The gate code is 4711.", **named)["memory_id"])
    shown = everything(compiled(db, user)["messages"])
    assert "4711" not in shown and re.search(line, shown)


def test_a_change_of_goal_is_a_moment_under_pressure(db, user, little_vectors):
    opened(db, user, 32_000)
    asked = {
        "Now the exports, please.": [0, 1, 0, 0],
        "And the parser's tests?": [0.1, 1, 0, 0],
        "Write a poem on tea.": [0, 0, 1, 0],
    }
    kinds, count = [], 0
    for question in asked:
        for _ in range(5):
            append(db, user, read(count, f"src/part_{count}.py", code(count, 6_000)))
            count += 1
            compiled(db, user)
        append(db, user, [{"role": "assistant", "content": "Done."}, {"role": "user", "content": question}])
        waiting = db.execute("select user_id, item_no, text from memoir.claim_embeddings(1000, 'little')").fetchall()
        vectors = [next((v for q, v in asked.items() if q in text), [1, 0, 0, 0]) for _, _, text in waiting]
        users, numbers = [row[0] for row in waiting], [row[1] for row in waiting]
        store = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'little')"
        db.execute(store, [users, numbers, [float(x) for vector in vectors for x in vector]])
        before = call(db, "session_pressure", user, "s")["moments"]
        compiled(db, user)
        last = call(db, "session_pressure", user, "s")
        kinds.append(last["last_moment"]["kind"] if last["moments"] > before else None)
    assert kinds[1:] == [None, "goal"]


def test_types_that_are_needed_again_are_made_shorter_later(db, user):
    opened(db, user, 64_000)
    seen: list[set] = [set(), set()]
    for n in range(28):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
        compiled(db, user)
        seen[n >= 14] |= {row[0] for row in table(db, "explain_context", user, "s", columns="fidelity")}
        if n == 13:
            for again in range(3):
                append(db, user, read(100 + again, f"src/part_{again}.py", code(again, 12_000)))
            assert call(db, "session_pressure", user, "s")["faults"] == {"page_fault": 3}
    assert "compact" in seen[0] and "detailed" not in seen[0] and "detailed" in seen[1]


def test_arguments_of_old_calls_are_reduced_like_results(db, user):
    opened(db, user, 64_000)
    text = code(1, 16_000)
    append(db, user, step(0, "Write", {"file_path": "src/new.py", "content": text}, "File created."))
    for n in range(1, 30):
        append(db, user, read(n, f"src/b_{n}.py", code(n, 6_000)))
        made = compiled(db, user)
    writing = next((m for m in made["messages"] if "call_0" in {c["id"] for c in m.get("tool_calls", [])}), None)
    if writing is not None:
        arguments = json.loads(writing["tool_calls"][0]["function"]["arguments"])
        assert arguments["file_path"] == "src/new.py" and len(arguments["content"]) < len(text) / 2
    assert text not in everything(made["messages"])


def test_a_cold_cache_is_a_moment(db, user):
    try:
        set_clock(db, "2030-05-01 12:00:00+00")
        opened(db, user, 128_000)
        for n in range(12):
            append(db, user, read(n, f"src/part_{n}.py", code(n, 9_000)))
        compiled(db, user)
        before = call(db, "session_pressure", user, "s")["moments"]
        set_clock(db, "2030-05-01 12:30:00+00")
        compiled(db, user)
        pressure = call(db, "session_pressure", user, "s")
    finally:
        set_clock(db, None)
    assert (pressure["moments"], pressure["last_moment"]["kind"]) == (before + 1, "cold")


def test_forms_for_a_list_that_its_client_keeps(db, user):
    """The same bytes until the next moment, and with what each part is called."""
    opened(db, user, 64_000)
    for n in range(30):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 8_000)))
    columns = "turn_index, tool_call_id, call_no, object, fidelity, content, tokens, full_tokens"
    first = table(db, "window_forms", user, "s", columns=columns)
    assert first and first == table(db, "window_forms", user, "s", columns=columns)
    turn, called, number, name, fidelity, content, tokens, full = first[0]
    assert (turn, called, number) == (2, "call_0", 0) and fidelity in ("compact", "stub")
    assert name in content and tokens < full / 4
    append(db, user, read(30, "src/part_30.py", code(30, 600)))
    after = table(db, "window_forms", user, "s", columns=columns)
    assert after[: len(first)] == first
    assert table(db, "window_forms", user, "s", p_changed=True, columns="turn_index")


def test_pins_stay_whole_and_released_objects_become_stubs(db, user):
    opened(db, user, 64_000)
    append(db, user, read(0, "src/keep.py", code(0, 6_000)))
    append(db, user, read(1, "src/drop.py", code(1, 6_000)))
    named = {}
    for n in range(2, 14):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 9_000)))
        compiled(db, user)
    for turn, name in table(db, "window_forms", user, "s", columns="turn_index, object"):
        named[turn] = name
    assert call(db, "memory_restore", user, "s", named[2]) == code(0, 6_000)
    assert call(db, "memory_restore", user, "s", named[4], "2-3") == "\n".join(code(1, 6_000).split("\n")[1:3])
    assert call(db, "memory_release", user, "s", [named[4]]) == 1
    call(db, "memory_query", user, "s", "Which limit has the first function?")
    for n in range(14, 40):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 9_000)))
        made = compiled(db, user)
    faults = call(db, "session_pressure", user, "s")["faults"]
    assert faults["full_restore"] == 2 and faults.get("micro_fault", 0) <= 1
    dropped = [m for m in made["messages"] if m.get("tool_call_id") == "call_1"]
    assert all(m["content"].startswith("[stub") for m in dropped)


def test_directives_change_what_is_shown_and_are_not_shown_again(db, user):
    opened(db, user, 64_000)
    for n in range(4):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
    names = dict(table(db, "window_forms", user, "s", p_budget=9_000, columns="turn_index, object"))
    said = "\n".join(
        [
            "I keep the first.<memory-window>",
            f"anchor: {names[2]}",
            f"summarize: {names[4]}: loads and checks parts",
            "collapse: 5-6: nothing of note",
            "drop: 00000000",
            "forget it",
            "</memory-window>",
        ]
    )
    done = append(db, user, step(10, "Bash", {"command": "true"}, "ok", said))
    assert len([warning for warning in done["warnings"] if warning.startswith("directive")]) == 2
    for n in range(11, 30):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
        made = compiled(db, user)
    shown = {message.get("tool_call_id"): text_of(message) for message in made["messages"]}
    assert "memory-window" not in everything(made["messages"]) and "I keep the first." in everything(made["messages"])
    assert "loads and checks parts" in shown.get("call_1", "loads and checks parts")
    assert "nothing of note" in shown.get("call_2", "nothing of note")
    assert "<memory-window>" in call(db, "history", user, "s", 9, 9)["content"]


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("memory_restore", ["zz"], "no object"),
        ("memory_restore", ["3f2a91bc"], "no object"),
        ("memory_release", [[]], "1 to 100"),
        ("memory_query", ["  "], "must not be empty"),
        ("memory_query", ["x", 5], "from 50 to 16000"),
        ("memory_query", ["x", 100, "all"], "scope"),
    ],
)
def test_bad_arguments_are_named(db, user, function, arguments, message):
    opened(db, user, 64_000)
    with pytest.raises(Exception, match=message):
        call(db, function, user, "s", *arguments)


def test_a_chat_without_tools_has_no_frame(db, user):
    for n in range(8):
        append(db, user, [{"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": "Yes."}])
    compiled(db, user, "And now?")
    assert call(db, "session_pressure", user, "s")["moments"] == 0
    assert shown_calls(compiled(db, user, "And now?")["messages"]) == set()


def test_what_lies_deep_moves_only_where_that_pays(db, user):
    """Files of an early exchange are read again later. Their old forms, far up, stay the same bytes."""
    opened(db, user, 200_000)
    for n in range(60):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 14_000)))
        table(db, "window_forms", user, "s", p_budget=400_000)
    before = table(db, "window_forms", user, "s", p_budget=400_000, columns="turn_index, content")
    assert len(before) > 30
    # Two of the oldest are read again, then others: the newest of what was whole moves, the two stay as they are.
    for n in (60, 61, *range(62, 90)):
        path = n - 60 if n < 62 else n
        append(db, user, read(n, f"src/part_{path}.py", code(path, 14_000)))
        after = dict(table(db, "window_forms", user, "s", p_budget=400_000, columns="turn_index, content"))
    assert len(after) > len(before) + 10
    assert all(after[turn] == content for turn, content in before), "the prefix is what it was"


def test_short_client_list_is_not_rewritten(db, user):
    """Before it has a history that could pay for it; from then on it is."""
    opened(db, user, 200_000)
    moved = []
    for n in range(60):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 6_000)))
        moved.append(len(table(db, "window_forms", user, "s", p_budget=400_000)))
    assert not any(moved[:30]) and moved[-1] > 30


def moved(db: Db, user: str) -> dict[str, str]:
    """What stands shorter after a moment: {path: fidelity}."""
    rows = table(db, "window_forms", user, "s", p_budget=100_000, p_changed=True, columns="content, fidelity")
    return {found[0]: fidelity for content, fidelity in rows if (found := re.search(r"src/\w+\.py", content))}


def triggers(db: Db, user: str) -> set[str]:
    rows = db.execute(
        "select distinct trigger from _memoir.fidelity_transitions join _memoir.users u using (user_id) where u.external_id = %s",
        [user],
    )
    return {trigger for (trigger,) in rows}


def test_what_an_answer_used_is_raised_with_what_it_depends_on(db, user):
    opened(db, user, 200_000)
    for n in range(8):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
    change = {"file_path": "src/part_1.py", "old_string": "a", "new_string": "ZEBRA_LIMIT = 40\n" + code(70, 4_000)}
    append(db, user, step(8, "Edit", change, "The file src/part_1.py has been updated."))
    append(db, user, read(9, "src/part_1.py", "QUAGGA_LIMIT = 12\n" + code(1, 12_000)))
    for n in range(10, 16):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
    before = moved(db, user)
    assert before["src/part_1.py"] in ("compact", "stub") and triggers(db, user) == {"pressure"}
    said = compiled(db, user, "What is QUAGGA_LIMIT?")
    hits = table(db, "recall", user, "What is QUAGGA_LIMIT?", columns="id::text, content")
    [used] = {item for item, content in hits if "QUAGGA_LIMIT = 12" in content and item in said["items"]}
    assert call(db, "credit_recall", user, said["compile_id"], [used]) >= 1
    assert moved(db, user) == before | {"src/part_1.py": "detailed"}
    assert triggers(db, user) == {"pressure", "access"}
    assert moved(db, user)["src/part_1.py"] != "full", "once: the next moment does not raise it again"


def logprobs(text: str, surprised: range) -> dict:
    """As a chat completion has them: sure of every word but some, which could have been any of twenty."""
    tokens = []
    for place, word in enumerate(re.findall(r"\S+\s*", text)):
        among = [{"token": word, "logprob": -0.01}, {"token": "x", "logprob": -6.0}]
        if place in surprised:
            among = [{"token": word + "x" * n, "logprob": -3.0} for n in range(20)]
        tokens.append({"token": word, "logprob": among[0]["logprob"], "bytes": None, "top_logprobs": among})
    return {"content": tokens, "refusal": None}


def test_what_a_model_is_unsure_of_is_a_fault_of_what_it_lacks(db, user):
    opened(db, user, 200_000)
    for n in range(16):
        append(db, user, read(n, f"src/part_{n}.py", code(n, 12_000)))
    assert moved(db, user)["src/part_3.py"] in ("compact", "stub")
    lacked = next(line for line in reversed(code(3, 12_000).split("\n")) if line.startswith("def "))[4:].split("(")[0]
    before = moved(db, user)
    sure = "I will now go through all of the files that were read before, one by one, as was asked for by you."
    unsure = f"The limit comes from src/part_3.py where {lacked} is, I think, maybe, or from what calls it, which has one more, or two, and so on and on."
    said = {"role": "assistant", "content": f"{sure} {unsure}"}
    named = append(
        db, user, [said | {"logprobs": logprobs(said["content"], range(0))}, {"role": "user", "content": "Well?"}]
    )
    assert "faults" in call(db, "session_pressure", user, "s") and not named["warnings"]
    assert call(db, "session_pressure", user, "s")["faults"] == {}, "a sure model lacks nothing"
    begin = len(sure.split())
    append(
        db,
        user,
        [
            said | {"logprobs": logprobs(said["content"], range(begin, begin + 12))},
            {"role": "user", "content": "Well?"},
        ],
    )
    assert call(db, "session_pressure", user, "s")["faults"] == {}
    append(db, user, [said | {"logprobs": logprobs(said["content"], range(begin, 99))}])
    assert call(db, "session_pressure", user, "s")["faults"] == {"entropy_triggered": 1}
    told = [
        message.get("entropy")
        for (message,) in table(db, "history", user, "s")
        if message["content"] == said["content"]
    ]
    assert told[0] is None and 1.5 < told[1] <= 2.2 < told[2] < 3.1
    assert not any("logprobs" in message for (message,) in table(db, "history", user, "s")), "they are not kept"
    assert moved(db, user) == before | {"src/part_3.py": "detailed"} and "fault" in triggers(db, user)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (
            {"role": "user", "content": "Hi", "logprobs": {"content": []}},
            "messages[0].logprobs can't stand in a message of role user",
        ),
        ({"role": "assistant", "content": "Hi", "logprobs": 5}, "messages[0].logprobs must hold tokens"),
        ({"role": "assistant", "content": "Hi", "logprobs": [{"token": "a"}]}, "messages[0].logprobs must hold tokens"),
        (
            {"role": "assistant", "content": "Hi", "logprobs": [{"token": "a", "logprob": 0, "top_logprobs": [{}]}]},
            "messages[0].logprobs must hold tokens",
        ),
    ],
)
def test_log_probabilities_are_checked(db, user, message, error):
    with pytest.raises(Exception, match=re.escape(error)):
        append(db, user, [message])


@pytest.mark.parametrize("given", [None, {"content": None}, {"content": []}, []])
def test_a_model_may_give_none(db, user, given):
    append(db, user, [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi", "logprobs": given}])
    assert [message for (message,) in table(db, "history", user, "s")][1]["content"] == "Hi"
