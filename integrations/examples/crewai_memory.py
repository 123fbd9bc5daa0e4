"""CrewAI's memory in PostgreSQL: one process remembers, another one recalls."""

import os

from crewai import Memory
from pg_memoir import Memoir
from pg_memoir_integrations.crewai import MemoirStorage

memoir = Memoir(os.environ["PG_MEMOIR_DSN"])


def memory():
    """Each crew takes one: Crew(agents=..., tasks=..., memory=memory())."""
    storage = MemoirStorage(memoir, "alice", collection="research")
    return Memory(storage=storage, llm="openai/gpt-4o-mini", embedder={"provider": "openai"})


with_scope = memory()
with_scope.remember("Alice reads the paper edition.", scope="/alice", categories=["media"], importance=0.8)
with_scope.close()

for match in memory().recall("Which edition does Alice read?", scope="/alice", depth="shallow"):
    print(match.record.scope, "·", match.record.content)
memoir.close()
