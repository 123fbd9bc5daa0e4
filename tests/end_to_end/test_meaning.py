"""Earlier statements that share no word with a message are found by their meaning, where the shared embedder answers."""

from collections.abc import Callable
from typing import Any

import pytest
from calls import Db, call, persist, table
from talk import talk

PLANTS = "rose quince medlar plum fig vine pear box yew bay".split()
FILLER = [f"How do I prune a {plant} in spring?" for plant in PLANTS] * 3


def kinds(db: Db, user: str) -> list[str]:
    return [kind for (kind,) in table(db, "list_changes", user, columns="kind")]


@pytest.mark.usefixtures("embedding_dsn")
def test_a_request_without_the_words_is_carried_out(db: Db, user: str) -> None:
    talk(db, user, "I earn 2,870 net a month", *FILLER)
    db.execute("call memoir.run_job('embed')")
    persist(db, user, "last", "please forget my wages", "I see.")
    call(db, "extract_session", user, "last")
    assert kinds(db, user) == ["forgotten"]
    assert "2,870" not in str(call(db, "compile_context", user, "asks", "How much do I earn a month?"))


@pytest.mark.usefixtures("embedding_dsn")
def test_what_is_alike_and_true_beside_it_changes_nothing(db: Db, user: str) -> None:
    talk(db, user, "The budget for the kitchen is 6,000 euros", "The budget for the shed is 1,500 euros")
    assert "changed" not in kinds(db, user)


@pytest.mark.usefixtures("embedding_dsn")
def test_a_remark_brings_what_it_is_about(db: Db, user: str) -> None:
    """It shares no word with it and asks nothing."""
    talk(db, user, "My knee is basically shot, the cartilage is gone and stairs are the worst bit", *FILLER)
    db.execute("call memoir.run_job('embed')")
    remark = "We moved into a flat on the fifth floor and the lift has been dead since, I crawl up like an old dog"

    def score(text: str) -> float:
        rows = table(db, "explain_context", user, "later", text, columns="content, score")
        return next(score for content, score in rows if "cartilage" in content)

    assert score(f"{remark}.") > 1.5 * score(f"{remark}?")
    assert "cartilage" in str(call(db, "compile_context", user, "later", f"{remark}.", p_memory_budget=300))
    assert "cartilage" not in str(call(db, "compile_context", user, "later", "Thanks, that was great!"))


@pytest.mark.usefixtures("embedding_dsn")
def test_a_compile_asks_the_model_server_once(db: Db, user: str) -> None:
    """One request has the facts of the question and its vector. With a vector given nothing is embedded."""
    talk(db, user, "I earn 2,870 net a month", *FILLER)
    db.execute("call memoir.run_job('embed')")

    def embedded() -> int:
        stats = "_memoir.py_embedder_stats(config ->> 'embedder_socket', 1000)::jsonb"
        told = db.execute(f"select {stats} from _memoir.settings_merged").fetchone()[0]
        return sum(model["queries"] for model in told["figures"].values())

    def asked_by(ask: Callable[[str], Any]) -> int:
        """The least that one of some questions asked: tests beside this one ask the same server."""
        asked = []
        for month in ("May", "June", "July", "August", "September"):
            before = embedded()
            ask(f"How much did {user} earn in {month}?")
            asked.append(embedded() - before)
        return min(asked)

    assert call(db, "context", user, "asks", "How much do I earn these days?")["arms"]["vector"]
    assert asked_by(lambda question: call(db, "context", user, "asks", question)) == 1
    given = [0.1] * 384
    assert asked_by(lambda question: call(db, "context", user, "asks", question + "?", p_query_embedding=given)) == 0
