"""An agent of the Microsoft Agent Framework that knows in one session what was said in another."""

import asyncio
import os

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from pg_memoir import AsyncMemoir
from pg_memoir_integrations.agent_framework import MemoirContextProvider


async def main():
    async with AsyncMemoir(os.environ["PG_MEMOIR_DSN"]) as memoir:
        agent = Agent(
            OpenAIChatCompletionClient(model="gpt-4o"),
            instructions="You are a travel agent.",
            context_providers=[MemoirContextProvider(memoir, "alice")],
        )
        await agent.run("I can't eat peanuts.", session=agent.create_session(session_id="monday"))
        friday = agent.create_session(session_id="friday")
        print((await agent.run("Which snack without peanuts may I eat?", session=friday)).text)
        for turn in await memoir.history("alice", "friday"):
            print(turn["role"], "·", turn["content"])


asyncio.run(main())
