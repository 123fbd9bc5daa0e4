"""Work for a language model from its queue to what is stored: a stand-in provider's answers, and what came of them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agents import Agent
from calls import Db, call, persist, remembered, run_job, set_settings
from internals import keep_forms, own_rows, read_forms
from servers import connect
from stubs import Answer, ChatCompletionsStub, MessagesStub

STUBS = {"openai": ChatCompletionsStub, "anthropic": MessagesStub}
PRICE = {"prompt_tokens": 1000, "completion_tokens": 100}
TOKENS, COST = 1100, 1000 * 100 + 100 * 500  # of one call at the prices of the model "priced"
BOAT, KEPT = "We keep the boat Brisa in Harstad", "The user keeps the boat Brisa in Harstad."

# Provider, and where its calls are made. One test goes all three ways, the others go one.
WAYS = [("openai", "inside"), ("openai", "outside"), ("anthropic", "outside")]


@dataclass
class Way:
    """A provider, and what has the queued calls made."""

    db: Db
    dsn: str
    provider: str
    run: Callable[[], None]

    def use(self, url: str, **changed: Any) -> None:
        """Has the provider at a URL asked."""
        values = {"provider": self.provider, "model": "priced", "endpoint": url, "timeout": 10, "retries": 1} | changed
        set_settings(self.db, **{f"llm_{key}": value for key, value in values.items()})

    @contextmanager
    def asks(self, *answers: Any, meanwhile: tuple[str, list[Any]] | None = None, **changed: Any) -> Iterator[Any]:
        """A provider with these answers, which is asked. Before each of them `meanwhile`, a statement with its values, is
        executed."""
        dsn = self.dsn

        class Provider(STUBS[self.provider]):  # type: ignore[misc]
            def handle(self, path: str, body: dict[str, Any]) -> Any:
                if meanwhile:
                    with connect(dsn) as other:
                        other.execute(*meanwhile)
                return super().handle(path, body)

        with Provider(*answers) as stub:
            self.use(stub.url, **changed)
            yield stub

    def active_rows(self, user: str, columns: str = "content") -> list[tuple[Any, ...]]:
        """Of the user's active memories."""
        return own_rows(self.db, user, "memory_store", columns, "state = 'active' order by content")

    def contents(self, user: str) -> set[str]:
        return {content for (content,) in self.active_rows(user)}

    def costs(self, user: str) -> list[tuple[Any, ...]]:
        return costs(self.db, user)

    def extract(self, user: str, *said: str) -> None:
        """Said in a session "s" and read by rules, which leaves it for the model."""
        persist(self.db, user, "s", *said)
        run_job(self.db, "extract")

    def hikes(self, user: str) -> list[str]:
        """Three memories that rules have put together; their ids."""
        ids = [remembered(self.db, user, text, embedding=vector) for text, vector in HIKES.items()]
        run_job(self.db, "consolidation")
        return ids

    def history(self, user: str) -> dict[str, tuple[Any, ...]]:
        """Of all memories, by their text: state, reason, successor, id, who worded it."""
        columns = "content, state::text, state_reason, superseded_by::text, memory_id::text, metadata ->> 'by'"
        return {row[0]: row[1:] for row in own_rows(self.db, user, "memory_store", columns)}

    def deploy(self, user: str) -> list[tuple[Any, ...]]:
        """An object whose forms were needed: by whom each was made, and what is shown now."""
        Agent(self.db, user).calls("Bash", {"command": "deploy"}, OUTPUT)
        return self.renew_forms(user)

    def renew_forms(self, user: str) -> list[tuple[Any, ...]]:
        """As at a moment of compile."""
        keep_forms(self.db, user, 1, 2)
        return [(form["made_by"], form["content"]) for form in read_forms(self.db, user, 1, 2)]

    def ask(self, user: str, *more: Any) -> dict[str, Any]:
        return dict(call(self.db, "memory_query", user, "s", WHERE, *more))

    def answer_of(self, user: str, asked: dict[str, Any]) -> dict[str, Any]:
        return dict(call(self.db, "query_answer", user, "s", asked["answer"]["id"]))


def costs(db: Db, user: str) -> list[tuple[Any, ...]]:
    """Of the user and of each session: helpers' tokens, what they cost, and all costs."""
    of = "helper_tokens, helper_microcents, cost_microcents"
    sessions = own_rows(db, user, "session_counters", of, "true order by helper_tokens desc")
    return own_rows(db, user, "user_counters", of) + sessions


def says(**output: Any) -> Answer:
    return Answer(text="Here you are:\n" + json.dumps(output), **PRICE)


def candidate(turn: int, quote: str, content: str, **more: Any) -> dict[str, Any]:
    return {"turn": turn, "quote": quote, "content": content, "type": "fact", "importance": 0.9} | more


GOOD = says(new=[candidate(0, BOAT, KEPT)])


def read_request(request: dict[str, Any]) -> dict[str, Any]:
    """What a request shows the model: turns, what was said before, memories by number."""
    text = request["messages"][-1]["content"]
    return dict(json.loads(text[text.index("{") : text.rindex("}") + 1]))


# Alike, and no duplicates: names and numbers differ.
HIKES = {
    "Hikes in the Alps each summer": [1, 0.1, 0, 0],
    "Hikes with Brigida.": [1, 0.3, 0, 0],
    "Hiked 40 km around Zermatt": [1, 0, 0.3, 0],
}
MERGED = "Hikes in the Alps each summer with Brigida, once 40 km around Zermatt."

OUTPUT = "\n".join(f"Step {n} of deploy to host web-{n}.example.org took {n * 31} seconds" for n in range(80))
SHORT = {"detailed": "Deployed to web-0.example.org first; 80 hosts.", "compact": "Deployed to 80 hosts."}
WHERE = "Where is the boat Brisa kept?"
