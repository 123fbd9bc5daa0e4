"""A Pydantic AI agent that remembers. TestModel answers here, so that it runs without a key."""

import os

from pg_memoir import Memoir
from pg_memoir_integrations.pydantic_ai import MemoirMemory
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

memoir = Memoir(os.environ["PG_MEMOIR_DSN"])
agent = Agent(TestModel(custom_output_text="Noted."), capabilities=[MemoirMemory(memoir, "alice", "pydantic-1")])

print(agent.run_sync("I read the paper edition.").output)
agent.run_sync("Which edition do I read?")
for turn in memoir.history("alice", "pydantic-1"):
    print(turn["role"], "·", turn["content"])
memoir.close()
