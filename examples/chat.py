"""A chat over HTTP. Each login is one user with a memory of their own, and answers are streamed.

CHAT_LOGINS='{"alice": "a password", "bob": "another"}' uvicorn chat:app
"""

import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, StreamingResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from openai import AsyncOpenAI
from pg_memoir import AsyncMemoir, from_openai
from pg_memoir.errors import UnknownSessionError, UnknownUserError
from pydantic import BaseModel

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o")
LOGINS: dict[str, str] = json.loads(os.environ["CHAT_LOGINS"])
SYSTEM = "You are a helpful assistant. Answer briefly."

memoir = AsyncMemoir(os.environ["PG_MEMOIR_DSN"])
llm = AsyncOpenAI()  # OPENAI_API_KEY and OPENAI_BASE_URL


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens connections before the first request and closes them after the last one."""
    async with memoir, llm:
        yield


app = FastAPI(title="Chat", lifespan=lifespan)


def logged_in(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> str:
    """Returns the name of who sends the request. Replace this by the login of your application."""
    expected = LOGINS.get(given.username, "")
    if not expected or not secrets.compare_digest(given.password.encode(), expected.encode()):
        raise HTTPException(401, "wrong name or password", {"WWW-Authenticate": "Basic"})
    return given.username


# The user comes from the login and never from the request, so nobody reads the memory of somebody else.
User = Annotated[str, Depends(logged_in)]


class Said(BaseModel):
    """A message of the user."""

    text: str


@app.get("/")
def page(user: User) -> FileResponse:
    """Returns the page of the chat."""
    return FileResponse(Path(__file__).with_name("chat.html"))


@app.get("/chats")
async def list_chats(user: User) -> list[str]:
    """Lists the chats of the user, newest first."""
    return [row.session for row in await memoir.list_sessions(user)]


@app.get("/chats/{chat}")
async def read_chat(chat: str, user: User) -> list[dict[str, Any]]:
    """Returns the messages of a chat, none for one that has not begun."""
    try:
        turns = await memoir.history(user, chat)
    except (UnknownUserError, UnknownSessionError):
        return []
    return [{"role": turn["role"], "text": turn["content"]} for turn in turns]


@app.get("/memories")
async def list_memories(user: User) -> list[str]:
    """Lists what is known about the user."""
    return [memory.content for memory in await memoir.list_memories(user)]


@app.post("/chats/{chat}")
async def say(chat: str, said: Said, user: User) -> StreamingResponse:
    """Streams the answer to a message and stores both."""
    session = memoir.session(user, chat, model=MODEL, system_prompt=SYSTEM)
    messages = await session.compile_context(said.text)
    chunks = await llm.chat.completions.create(
        model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
    )

    async def answer() -> AsyncIterator[str]:
        received = []
        try:
            async for chunk in chunks:
                received.append(chunk)
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content
        finally:
            # Also when the reader has gone or the provider fails: keep what arrived, and let nothing interrupt that.
            with anyio.CancelScope(shield=True):
                await chunks.close()
                if any(chunk.choices for chunk in received):
                    reply = from_openai(received)
                    await session.persist_turn(
                        [{"role": "user", "content": said.text}, reply.message], usage=reply.usage
                    )

    return StreamingResponse(answer(), media_type="text/plain")
