"""An agent's session as a client sends it: one call of a tool after the other, in one open exchange."""

from typing import Any

from calls import Db, store
from loops import step


class Agent:
    """A user's question, then calls and their results, each appended as it comes."""

    def __init__(self, db: Db, user: str, session: str = "s", question: str = "Please fix it.") -> None:
        self.db, self.user, self.session, self.count = db, user, session, 0
        self.append({"role": "user", "content": question})

    def append(self, *said: dict[str, Any]) -> dict[str, Any]:
        return store(self.db, self.user, self.session, list(said), "append_messages")

    def calls(self, tool: str, arguments: dict[str, Any], result: str, says: str | None = None) -> dict[str, Any]:
        """One step: what it says, the call, its result."""
        self.count += 1
        asked, told = step(self.count, tool, arguments, result, says)
        self.append(asked)
        return self.append(told)
