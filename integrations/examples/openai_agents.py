"""An agent of the OpenAI Agents SDK whose session lies in PostgreSQL."""

import os

from agents import Agent, Runner
from pg_memoir import Memoir
from pg_memoir_integrations.openai_agents import MemoirSession

memoir = Memoir(os.environ["PG_MEMOIR_DSN"])
agent = Agent(name="desk", instructions="You are the support desk of a magazine.", model="gpt-4o")
session = MemoirSession("agents-1", memoir, user="alice")

Runner.run_sync(agent, "My subscription number is A-17, the paper edition.", session=session)
print(Runner.run_sync(agent, "Why was my March invoice wrong?", session=session).final_output)
print(memoir.recall("alice", "Which edition do I have?")[0].content)
memoir.close()
