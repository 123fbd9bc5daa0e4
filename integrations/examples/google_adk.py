"""ADK's sessions and memory in PostgreSQL. A Runner takes both services; here they are called as it does."""

import asyncio
import os

from google.adk.events.event import Event
from google.genai import types
from pg_memoir import Memoir
from pg_memoir_integrations.google_adk import MemoirMemoryService, MemoirSessionService

memoir = Memoir(os.environ["PG_MEMOIR_DSN"])


async def main():
    sessions, memory = MemoirSessionService(memoir), MemoirMemoryService(memoir)
    session = await sessions.create_session(app_name="desk", user_id="alice", state={"user:edition": "paper"})
    said = types.Content(role="user", parts=[types.Part(text="I moved to Odense in March.")])
    await sessions.append_event(session, Event(author="user", invocation_id="1", content=said))
    print((await sessions.get_session(app_name="desk", user_id="alice", session_id=session.id)).state)
    found = await memory.search_memory(app_name="desk", user_id="alice", query="Where did I move?")
    print(found.memories[0].content.parts[0].text)


asyncio.run(main())
memoir.close()
