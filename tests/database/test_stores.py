"""Frameworks keep documents under namespaces and items of sessions as they came, and take turns back."""

from typing import Any

import pytest
from calls import Db, run_job, set_clock
from loops import step
from pg_memoir import Memoir, Session, errors

STEP = step(1, "look_up", {}, "ok")
ASKED = "What is my lighthouse called?"


def put(memoir: Memoir, user: str, key: str = "k", namespace: str = "notes", **more: Any) -> dict[str, Any]:
    return memoir.put_documents(user, [{"namespace": namespace.split("/"), "key": key} | more])


def find_keys(memoir: Memoir, user: str, namespace: str = "", query: str | None = None, **more: Any) -> list[str]:
    return [d.key for d in memoir.search_documents(user, namespace.split("/") if namespace else [], query, **more)]


def value_of(memoir: Memoir, user: str, key: str = "k", **more: Any) -> Any:
    documents = memoir.get_documents(user, ["notes"], [key], **more)
    return documents[0].value if documents else None


# Documents ------------------------------------------------------------------------------------------------------------


def test_documents_are_put_replaced_and_deleted(memoir: Memoir, user: str) -> None:
    deep = {"n": 1.50, "deep": [None, {"x": "é"}]}
    assert put(memoir, user, value=deep) == {"stored": 1, "deleted": 0, "secret": [], "appended": []}
    [first] = memoir.get_documents(user, ["notes"], ["k", "none"])
    assert first.value == deep and first.expires_at is None
    put(memoir, user, value=[1, 2])
    [second] = memoir.get_documents(user, ["notes"], ["k"])
    assert second.value == [1, 2] and second.created_at == first.created_at and second.updated_at > first.updated_at
    assert put(memoir, user, value=None)["deleted"] == 1 and find_keys(memoir, user) == []


def test_documents_are_found_by_words_or_vectors(memoir: Memoir, user: str) -> None:
    put(memoir, user, "en", value={"text": "She was running along the river"})
    put(memoir, user, "de", value={"text": "Die Häuser am Hafen werden gestrichen und der Hund schläft"})
    put(memoir, user, "off", value={"text": "running running"}, text=None)
    assert find_keys(memoir, user, query="runs by rivers")[0] == "en"
    assert find_keys(memoir, user, query="welches Haus ist am Hafen?")[0] == "de"
    put(memoir, user, "nul", value={"text": "pelican\0 harbour"})
    assert [memoir.search_documents(user, query=word)[0].score for word in ("pelican", "0000")] == [1, 0]
    put(memoir, user, "v", value={}, embeddings=[[1, 0], [0, 1]])
    put(memoir, user, "w", value={}, embeddings=[[1, 1]])
    best = memoir.search_documents(user, ["notes"], query_embedding=[0, 2], limit=2)
    assert [(document.key, round(document.score, 3)) for document in best] == [("v", 1), ("w", 0.707)]
    put(memoir, user, "w", merge={"a": 1})
    put(memoir, user, "v", value={"a": 1})
    best = memoir.search_documents(user, ["notes"], query_embedding=[0, 2], limit=1)
    assert [document.key for document in best] == ["w"], "a merge keeps vectors, a new value does not"


def test_filters_compare_values(memoir: Memoir, user: str) -> None:
    put(memoir, user, "a", value={"n": 3, "s": "x", "tags": ["p"]})
    put(memoir, user, "b", value={"n": 5})
    put(memoir, user, "c", value={"n": 9, "deep": {"x": 1, "y": 2}})
    for asked, keys in (
        ({"n": 5}, "b"),
        ({"n": {"$gt": 3}}, "bc"),
        ({"n": {"$gte": 5, "$lt": 9}}, "b"),
        ({"s": {"$ne": "x"}}, "bc"),
        ({"deep": {"x": 1}}, "c"),
        ({"tags": ["p"]}, "a"),
        ({"s": {"$gt": "a"}}, "a"),
        ({"none": None}, ""),
        ({"n": {"$in": [3, 9]}}, "ac"),
        ({"n": {"$in": []}}, ""),
        ({"s": {"$nin": ["x", "y"]}}, "bc"),
        ({"$or": [{"n": {"$lt": 4}}, {"deep": {"x": {"$in": [1]}}}]}, "ac"),
        ({"$and": [{"n": {"$gt": 3}}, {"s": {"$exists": False}}], "deep": {"$exists": True}}, "c"),
        ({"$not": {"$or": [{"n": 3}, {"n": 5}]}}, "c"),
        ({"n": {"$not": {"$lte": 3}}}, "bc"),
        ({"$or": []}, ""),
        ({}, "abc"),
    ):
        assert sorted(find_keys(memoir, user, filter=asked)) == list(keys), asked
    put(memoir, user, "d", value={"$id": 7, "$$$": 1})  # names that begin with $ have one more in a filter
    for asked in ({"$$id": 7}, {"$$id": {"$gt": 6}}, {"$$$$": {"$exists": True}}):
        assert find_keys(memoir, user, filter=asked) == ["d"], asked
    with pytest.raises(errors.InvalidArgumentError, match=r"unknown operator .*\$id") as refused:
        find_keys(memoir, user, filter={"$id": 7})
    assert "$$id for a field" in str(refused.value.hint)


def test_namespaces_are_labels_not_text(memoir: Memoir, user: str) -> None:
    for namespace in ("a", "a/b", "ab", "x/a%/b"):
        put(memoir, user, namespace=namespace, value=1)
    assert len(find_keys(memoir, user, "a")) == 2 and len(find_keys(memoir, user)) == 4

    def names(match: str, *path: str) -> list[list[str]]:
        return memoir.list_document_namespaces(user, [{"match": match, "path": list(path)}])

    assert names("suffix", "b") == [["a", "b"], ["x", "a%", "b"]] and names("prefix", "*", "b") == [["a", "b"]]
    assert memoir.list_document_namespaces(user, depth=1, limit=2, offset=1) == [["ab"], ["x"]]


def test_ended_documents_are_gone_unless_read(memoir: Memoir, db: Db, user: str, clock: Any) -> None:
    clock("2026-05-01 12:00Z")
    for key in ("read", "left"):
        put(memoir, user, key, value={"a": 1}, minutes=10)
    set_clock(db, "2026-05-01 12:06Z")
    assert value_of(memoir, user, "left", refresh=False) == value_of(memoir, user, "read") == {"a": 1}
    set_clock(db, "2026-05-01 12:12Z")
    assert find_keys(memoir, user, refresh=False) == ["read"] and value_of(memoir, user, "left") is None
    assert run_job(db, "sweep")["documents"] == 1
    put(memoir, user, "left", merge={"b": 1}, exists=False)
    assert value_of(memoir, user, "left") == {"b": 1}


def test_secret_documents_are_not_found(memoir: Memoir, user: str) -> None:
    put(memoir, user, "plain", value={"text": "x"})
    assert put(memoir, user, "card", value={"text": "my card is 4539 1488 0343 6467"})["secret"] == ["card"]
    assert find_keys(memoir, user) == ["plain"]


def test_wrong_documents_are_refused(memoir: Memoir, user: str) -> None:
    put(memoir, user, value={"a": 1})
    for entry, problem in (
        ({"namespace": [""], "value": 1}, "namespace"),
        ({"namespace": "n", "value": 1}, "documents"),
        ({"key": None, "value": 1}, "key"),
        ({"value": 1, "minutes": -1}, "minutes"),
        ({"append": True, "value": 1}, r"documents\[0\]"),
        ({"append": 1, "key": None, "value": 1}, r"documents\[0\]"),
        ({"where": 1, "value": 1}, r"documents\[0\]"),
        ({"exists": "x", "value": 1}, r"documents\[0\]"),
        ({"at": "a", "merge": {"x": 1}}, "merge must be an object"),
        ({"merge": [1]}, "merge must be an object"),
        ({"merge": {"x": 1}, "value": {}}, "merge must be an object"),
    ):
        whole = {"namespace": ["notes"], "key": "k"} | entry
        with pytest.raises(errors.InvalidArgumentError, match=problem):
            memoir.put_documents(user, [{k: v for k, v in whole.items() if v is not None}])
    for asked, problem in (({"$near": 1}, "unknown operator"), ({"$in": "a"}, r"\$in takes a list, not")):
        with pytest.raises(errors.InvalidArgumentError, match=problem):
            find_keys(memoir, user, filter={"text": asked})
    assert value_of(memoir, user) == {"a": 1}


def test_documents_append_and_delete_by_filter(memoir: Memoir, user: str) -> None:
    def append(*values: str) -> list[dict[str, Any]]:
        return [{"namespace": ["q"], "append": True, "value": value} for value in values]

    done = memoir.put_documents(user, append("a", "b"))
    assert done["appended"] == ["000000000000", "000000000001"] and done["stored"] == 2
    put(memoir, user, "other", "q", value=1)
    put(memoir, user, "other", "q/deeper", value="x")
    assert memoir.put_documents(user, append("c"))["appended"] == ["000000000002"]
    assert memoir.put_documents(user, [{"namespace": ["q"], "where": {}}, *append("d")])["deleted"] == 4
    assert [document.value for document in memoir.search_documents(user, ["q"])] == ["d", "x"]


def test_documents_merge(memoir: Memoir, user: str) -> None:
    for more in ({"merge": {"a": 1, "b": {"x": 1}}}, {"merge": {"b": None}}, {"at": "in", "merge": {"c": 1}}):
        put(memoir, user, **more)
    put(memoir, user, at="in", merge={"d": [2]}, exists=True, text="a heron")
    assert value_of(memoir, user) == {"a": 1, "b": None, "in": {"c": 1, "d": [2]}}
    assert find_keys(memoir, user, query="herons") == ["k"]


def test_documents_change_only_as_they_were_read(memoir: Memoir, user: str) -> None:
    """No update is lost, and nothing of a refused call is written."""
    put(memoir, user, value={"n": 1}, exists=False)
    here = {"namespace": ["notes"], "key": "k"}
    was = {"was": {"n": 2}}
    for stale in ({"exists": False, "value": 0}, was | {"value": 0}, was, {"exists": False, "merge": {}}):
        with pytest.raises(errors.ChangedElsewhereError, match='document "k"'):
            memoir.put_documents(user, [here | {"key": "first", "value": 1}, here | stale])
    with pytest.raises(errors.ChangedElsewhereError):
        put(memoir, user, "none", merge={"x": 1}, exists=True)
    assert value_of(memoir, user, "first") is None
    memoir.put_documents(user, [here | {"was": {"n": 1.0}, "value": {"n": 2}}, here | {"was": {"n": 2}}])
    assert value_of(memoir, user) is None


# Items and turns ------------------------------------------------------------------------------------------------------


def test_items_with_documents_are_all_or_nothing(memoir: Memoir, user: str) -> None:
    def entry(**more: Any) -> list[dict[str, Any]]:
        return [{"namespace": ["notes"], "key": "k"} | more]

    memoir.append_items(user, "s", [{"item": {"n": 1}}], documents=entry(merge={"a": 1}), after_item=-1)
    for stale in ({"documents": entry(merge={"b": 1}), "after_item": -1}, {"documents": entry(value=1, exists=False)}):
        with pytest.raises(errors.ChangedElsewhereError):
            memoir.append_items(user, "s", [{"item": {"n": 2}}], **stale)
    assert [each.item for each in memoir.list_items(user, "s")] == [{"n": 1}] and value_of(memoir, user) == {"a": 1}
    memoir.append_items(user, "s", [{"item": {"n": 2}}], after_item=0)
    memoir.retract_items(user, "s", 1)
    memoir.append_items(user, "s", [{"item": {"n": 3}}], after_item=0)  # the last that list_items has


@pytest.fixture
def session(memoir: Memoir, user: str) -> Session:
    """A session with four items, of which a call and its output are one step."""
    session = memoir.session(user, "s")
    said = {"role": "user", "content": "My lighthouse is called Fennimore.", "id": "x1"}
    session.append_items(
        [
            {"item": said, "messages": [{"role": "user", "content": said["content"]}]},
            {"item": {"type": "reasoning", "encrypted_content": "…"}},
            {"item": {"type": "function_call", "call_id": "c1"}, "part_of": "c1"},
        ]
    )
    output = {"type": "function_call_output", "call_id": "c1"}
    session.append_items([{"item": output, "part_of": "c1", "messages": STEP}])
    return session


def types_of(session: Session) -> list[str | None]:
    return [item.item.get("type") for item in session.list_items()]


def test_items_come_back_as_they_came(memoir: Memoir, user: str, session: Session) -> None:
    assert types_of(session) == [None, "reasoning", "function_call", "function_call_output"]
    assert [item.turn_index for item in session.list_items()] == [0, None, 1, 1]
    assert [item.item_no for item in session.list_items(limit=2)] == [2, 3]
    assert [turn["role"] for turn in session.history()] == ["user", "assistant", "tool"]
    assert memoir.recall(user, ASKED)[0].turn_index == 0
    assert memoir.list_items(user, "another") == [] == memoir.retract_items(user, "another")


def test_retracted_turns_are_hidden_but_kept(memoir: Memoir, user: str, session: Session) -> None:
    assert [item["type"] for item in session.retract_items(1)] == ["function_call_output"]
    assert [item.turn_index for item in session.list_items()] == [0, None, None]  # the call waits again
    assert [turn.get("retracted", False) for turn in session.history()] == [False, True, True]
    assert "tool" not in str(session.compile_context("And now?"))
    assert len(session.retract_items()) == 3 and session.list_items() == []
    assert len(session.list_items(with_retracted=True)) == 4 and len(session.history()) == 3
    assert "Fennimore" not in str(session.compile_context(ASKED)) and memoir.recall(user, ASKED) == []
    session.append([{"role": "user", "content": "Hello again."}])
    assert session.compile_context() == [{"role": "user", "content": "Hello again."}]


def test_a_turn_is_taken_back_with_its_memories(memoir: Memoir, user: str) -> None:
    session = memoir.session(user, "s")
    session.persist_turn([{"role": "user", "content": "I live in Skagen."}, {"role": "assistant", "content": "Nice."}])
    session.append([{"role": "user", "content": "Look it up."}, STEP[0]])
    memoir.remember(user, "Lives in Skagen.", session="s", source_turns=[0])
    done = session.retract_turns(0)
    assert done["turns"] == [0] and len(done["memories"]) == 1
    assert memoir.list_memories(user) == [] and "Skagen" not in str(memoir.recall(user, "Where do I live?"))
    assert session.retract_turns(0) == {"turns": [], "memories": []}
    assert session.retract_turns(3)["turns"] == [3]  # an open call: the session goes on
    session.append([{"role": "user", "content": "Never mind."}])
    with pytest.raises(errors.InvalidArgumentError, match="range"):
        session.retract_turns(2, 1)


def test_items_and_documents_are_erased_and_imported(memoir: Memoir, user: str, session: Session) -> None:
    put(memoir, user, value={"text": "kept"}, embeddings=[[1, 2]])
    lines = list(memoir.export_lines(user))
    memoir.erase_session(user, "s")
    assert memoir.list_items(user, "s") == [] and find_keys(memoir, user) == ["k"]
    memoir.erase_user(user)
    memoir.import_lines(lines, user=user)
    assert find_keys(memoir, user, query="kept") == ["k"] and len(memoir.list_items(user, "s")) == 4
    memoir.erase_turn(user, "s", 1)
    assert types_of(session) == [None, "reasoning"]
