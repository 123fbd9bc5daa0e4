"""What frameworks keep: documents under namespaces, items of sessions as they came, turns that are taken back."""

import pytest
from calls import run_job, set_clock
from pg_memoir import Memoir, errors

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}


@pytest.fixture(scope="module")
def memoir(memoir_dsn):
    with Memoir(memoir_dsn) as client:
        yield client


def put(memoir, user, key, value, *namespace, **more):
    return memoir.put_documents(user, [{"namespace": namespace or ["notes"], "key": key, "value": value} | more])


def found(memoir, user, *namespace, query=None, **more):
    return [document.key for document in memoir.search_documents(user, list(namespace), query, **more)]


def test_documents_are_put_read_replaced_and_deleted(memoir, user):
    assert put(memoir, user, "a", {"n": 1.50, "deep": [None, {"x": "é"}]}) == {
        "stored": 1, "deleted": 0, "secret": [], "appended": [],
    }  # fmt: skip
    [first] = memoir.get_documents(user, ["notes"], ["a", "none"])
    assert first.value == {"n": 1.50, "deep": [None, {"x": "é"}]} and first.expires_at is None
    put(memoir, user, "a", [1, 2])
    [second] = memoir.get_documents(user, ["notes"], ["a"])
    assert second.value == [1, 2] and second.created_at == first.created_at and second.updated_at > first.updated_at
    assert put(memoir, user, "a", None)["deleted"] == 1
    assert memoir.get_documents(user, ["notes"], ["a"]) == [] == found(memoir, user)


def test_store_search_by_words_or_vectors(memoir, user):
    put(memoir, user, "en", {"text": "She was running along the river"})
    put(memoir, user, "de", {"text": "Die Häuser am Hafen werden gestrichen und der Hund schläft"})
    put(memoir, user, "off", {"text": "running running"}, text=None)
    assert found(memoir, user, query="runs by rivers")[0] == "en"
    assert found(memoir, user, query="welches Haus ist am Hafen?")[0] == "de"
    put(memoir, user, "v", {}, embeddings=[[1, 0], [0, 1]])
    put(memoir, user, "w", {}, embeddings=[[1, 1]])
    [best, second] = memoir.search_documents(user, ["notes"], query_embedding=[0, 2], limit=2)
    assert (best.key, round(best.score, 4), second.key, round(second.score, 3)) == ("v", 1, "w", 0.707)


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({"n": 5}, ["b"]), ({"n": {"$gt": 3}}, ["b", "c"]), ({"n": {"$gte": 5, "$lt": 9}}, ["b"]), ({"s": {"$ne": "x"}}, ["b", "c"]),
        ({"deep": {"x": 1}}, ["c"]), ({"tags": ["p"]}, ["a"]), ({"s": {"$gt": "a"}}, ["a"]), ({"none": None}, []), ({}, ["a", "b", "c"]),
    ],
)  # fmt: skip
def test_filters(memoir, user, asked, keys):
    put(memoir, user, "a", {"n": 3, "s": "x", "tags": ["p"]})
    put(memoir, user, "b", {"n": 5})
    put(memoir, user, "c", {"n": 9, "deep": {"x": 1, "y": 2}})
    assert sorted(found(memoir, user, filter=asked)) == keys


def test_namespaces_are_labels_not_text(memoir, user):
    for namespace in (["a"], ["a", "b"], ["ab"], ["x", "a%", "b"]):
        put(memoir, user, "k", 1, *namespace)
    assert len(found(memoir, user, "a")) == 2 and len(found(memoir, user)) == 4
    assert memoir.list_document_namespaces(user, [{"match": "suffix", "path": ["b"]}]) == [["a", "b"], ["x", "a%", "b"]]
    assert memoir.list_document_namespaces(user, [{"match": "prefix", "path": ["*", "b"]}]) == [["a", "b"]]
    assert memoir.list_document_namespaces(user, depth=1, limit=2, offset=1) == [["ab"], ["x"]]


def test_what_has_ended_is_gone_and_reading_lets_it_live_on(memoir, db, user, clock):
    clock("2026-05-01 12:00Z")
    put(memoir, user, "read", 1, minutes=10)
    put(memoir, user, "left", 1, minutes=10)
    set_clock(db, "2026-05-01 12:06Z")
    assert memoir.get_documents(user, ["notes"], ["left"], refresh=False) and memoir.get_documents(
        user, ["notes"], ["read"]
    )
    set_clock(db, "2026-05-01 12:12Z")
    assert (
        found(memoir, user, refresh=False)
        == ["read"]
        == [d.key for d in memoir.get_documents(user, ["notes"], ["read", "left"])]
    )
    assert run_job(db, "sweep")["documents"] == 1


def test_secret_documents_and_bad_ones(memoir, user):
    put(memoir, user, "plain", {"text": "x"})
    card = put(memoir, user, "card", {"text": "my card is 4539 1488 0343 6467"})
    assert card["secret"] == ["card"] and found(memoir, user) == ["plain"]
    for entry, problem in [
        ({"namespace": [""], "key": "k", "value": 1}, "namespace"), ({"namespace": ["n"], "value": 1}, "key"),
        ({"namespace": "n", "key": "k", "value": 1}, "documents"), ({"namespace": ["n"], "key": "k", "value": 1, "minutes": -1}, "minutes"),
    ]:  # fmt: skip
        with pytest.raises(errors.InvalidArgumentError, match=problem):
            memoir.put_documents(user, [entry])
    with pytest.raises(errors.InvalidArgumentError, match="unknown operator"):
        found(memoir, user, filter={"text": {"$near": 1}})


def entry(key="k", namespace="s", **more):
    return {"namespace": [namespace], "key": key, **more}


def value_of(memoir, user, key="k", namespace="s"):
    found = memoir.get_documents(user, [namespace], [key])
    return found[0].value if found else None


def test_documents_append(memoir, user):
    done = memoir.put_documents(user, [{"namespace": ["q"], "append": True, "value": n} for n in "ab"])
    assert done["appended"] == ["000000000000", "000000000001"] and done["stored"] == 2
    memoir.put_documents(
        user, [entry("other", "q", value=1), {"namespace": ["q", "deeper"], "append": True, "value": "x"}]
    )
    assert memoir.put_documents(user, [{"namespace": ["q"], "append": True, "value": "c"}])["appended"] == [
        "000000000002"
    ]
    done = memoir.put_documents(
        user, [{"namespace": ["q"], "where": {}}, {"namespace": ["q"], "append": True, "value": "d"}]
    )
    assert done["deleted"] == 4 and [d.value for d in memoir.search_documents(user, ["q"])] == ["d", "x"]
    for wrong in ({"append": True, "key": "k"}, {"append": 1}, {"where": 1}, {"exists": "x", "key": "k"}):
        with pytest.raises(errors.InvalidArgumentError, match=r"documents\[0\]"):
            memoir.put_documents(user, [{"namespace": ["q"], "value": 1} | wrong])


def test_documents_merge(memoir, user):
    memoir.put_documents(
        user, [entry(merge={"a": 1, "b": {"x": 1}}), entry(merge={"b": None}), entry(at="in", merge={"c": 1})]
    )
    memoir.put_documents(user, [entry(at="in", merge={"d": [2]}, exists=True, text="a heron")])
    assert value_of(memoir, user) == {"a": 1, "b": None, "in": {"c": 1, "d": [2]}}
    assert found(memoir, user, "s", query="herons") == ["k"]
    for wrong in ({"at": "a", "merge": {"x": 1}}, {"merge": [1]}, {"merge": {"x": 1}, "value": {}}):
        with pytest.raises(errors.InvalidArgumentError, match="merge must be an object"):
            memoir.put_documents(user, [entry(**wrong)])


def test_documents_change_only_what_was_read(memoir, user):
    memoir.put_documents(user, [entry(value={"n": 1}, exists=False)])
    for stale in (
        {"exists": False, "value": 0},
        {"was": {"n": 2}, "value": 0},
        {"was": {"n": 2}},
        {"exists": False, "merge": {}},
    ):
        with pytest.raises(errors.ChangedElsewhereError, match='document "k"'):
            memoir.put_documents(user, [entry("first", value=1), entry(**stale)])
    assert value_of(memoir, user, "first") is None, "nothing of the call is written"
    with pytest.raises(errors.ChangedElsewhereError):
        memoir.put_documents(user, [entry("none", merge={"x": 1}, exists=True)])
    memoir.put_documents(user, [entry(was={"n": 1.0}, value={"n": 2}), entry(was={"n": 2})])
    assert value_of(memoir, user) is None


def test_documents_that_ended_are_not_there(memoir, db, user, clock):
    clock("2026-05-01 12:00Z")
    memoir.put_documents(user, [entry(value={"a": 1}, minutes=10)])
    set_clock(db, "2026-05-01 12:12Z")
    memoir.put_documents(user, [entry(merge={"b": 1}, exists=False)])
    assert value_of(memoir, user) == {"b": 1}


def test_documents_search_reads_replacements(memoir, user):
    put(memoir, user, "k", {"text": "pelican\0 harbour"})
    scores = {word: memoir.search_documents(user, query=word)[0].score for word in ("pelican", "harbour", "0000")}
    assert scores == {"pelican": 1, "harbour": 1, "0000": 0}


def test_items_with_documents_are_all_or_nothing(memoir, user):
    memoir.append_items(user, "s", [{"item": {"n": 1}}], documents=[entry(merge={"a": 1})], after_item=-1)
    for stale in ({"after_item": -1}, {"documents": [entry(value=1, exists=False)]}):
        with pytest.raises(errors.ChangedElsewhereError):
            memoir.append_items(user, "s", [{"item": {"n": 2}}], **{"documents": [entry(merge={"b": 1})]} | stale)
    assert [each.item for each in memoir.list_items(user, "s")] == [{"n": 1}] and value_of(memoir, user) == {"a": 1}
    memoir.append_items(user, "s", [{"item": {"n": 2}}], after_item=0)
    memoir.retract_items(user, "s", 1)
    memoir.append_items(user, "s", [{"item": {"n": 3}}], after_item=0)  # the last that list_items has


def conversation(memoir, user):
    session = memoir.session(user, "s")
    said = {"role": "user", "content": "My lighthouse is called Fennimore.", "id": "x1"}
    session.append_items(
        [
            {"item": said, "messages": [{"role": "user", "content": said["content"]}]},
            {"item": {"type": "reasoning", "encrypted_content": "…"}},
            {"item": {"type": "function_call", "call_id": "c1"}, "part_of": "c1"},
        ]
    )
    told = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    session.append_items(
        [{"item": {"type": "function_call_output", "call_id": "c1"}, "part_of": "c1", "messages": told}]
    )
    return session


def test_items_come_back_as_they_came_and_are_told_by_turns(memoir, user):
    session = conversation(memoir, user)
    assert [item.item.get("type") for item in session.list_items()] == [
        None,
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert [item.turn_index for item in session.list_items()] == [0, None, 1, 1]
    assert [item.item_no for item in session.list_items(limit=2)] == [2, 3]
    assert [turn["role"] for turn in session.history()] == ["user", "assistant", "tool"]
    assert memoir.recall(user, "What is my lighthouse called?")[0].turn_index == 0
    assert memoir.list_items(user, "another") == [] == memoir.retract_items(user, "another")


def test_retracted_turns_are_hidden_but_kept(memoir, user):
    session = conversation(memoir, user)
    assert [item["type"] for item in session.retract_items(1)] == ["function_call_output"]
    assert [item.turn_index for item in session.list_items()] == [0, None, None]  # the call waits again
    assert [turn.get("retracted", False) for turn in session.history()] == [False, True, True]
    assert "tool" not in str(session.compile_context("And now?"))
    assert len(session.retract_items()) == 3 and session.list_items() == []
    assert len(session.list_items(with_retracted=True)) == 4 and len(session.history()) == 3
    assert "Fennimore" not in str(session.compile_context("What is my lighthouse called?"))
    assert memoir.recall(user, "What is my lighthouse called?") == []
    session.append([{"role": "user", "content": "Hello again."}])
    assert session.compile_context() == [{"role": "user", "content": "Hello again."}]


def test_a_turn_is_taken_back_with_what_was_made_of_it(memoir, user):
    session = memoir.session(user, "s")
    session.persist_turn([{"role": "user", "content": "I live in Skagen."}, {"role": "assistant", "content": "Nice."}])
    session.append(
        [{"role": "user", "content": "Look it up."}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    )
    memoir.remember(user, "Lives in Skagen.", session="s", source_turns=[0])
    done = session.retract_turns(0)
    assert done["turns"] == [0] and len(done["memories"]) == 1
    assert memoir.list_memories(user) == [] and "Skagen" not in str(memoir.recall(user, "Where do I live?"))
    assert session.retract_turns(0) == {"turns": [], "memories": []}
    assert session.retract_turns(3)["turns"] == [3]  # an open call: the session goes on
    session.append([{"role": "user", "content": "Never mind."}])
    with pytest.raises(errors.InvalidArgumentError, match="range"):
        session.retract_turns(2, 1)


def test_they_are_erased_and_come_back_from_an_export(memoir, user):
    conversation(memoir, user)
    put(memoir, user, "k", {"text": "kept"}, embeddings=[[1, 2]])
    lines = list(memoir.export_lines(user))
    memoir.erase_session(user, "s")
    assert memoir.list_items(user, "s") == [] and found(memoir, user) == ["k"]
    memoir.erase_user(user)
    memoir.import_lines(lines, user=user)
    assert found(memoir, user, query="kept") == ["k"] and len(memoir.list_items(user, "s")) == 4
    memoir.erase_turn(user, "s", 1)
    assert [item.item.get("type") for item in memoir.list_items(user, "s")] == [None, "reasoning"]
