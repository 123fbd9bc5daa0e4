"""MCP: the memory of one user, over stdio and streamable HTTP. Tools and resources are what the database defines
(memory_tools, memory_resources): what is added there is offered here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import mcp_types as types
import psycopg
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pg_memoir import AsyncMemoir, MemoirError, __version__
from pg_memoir.errors import UnknownMemoryError, UnknownSessionError

JSON = "application/json"
INSTRUCTIONS = (
    "What is known about the user, and what was said in earlier conversations. Search with memory_index or "
    "memory_recall before saying that something is not known. Keep with memory_remember what must hold beyond this "
    "conversation; correct and forget what the user asks to have corrected or forgotten."
)


@dataclass(frozen=True)
class Who:
    """Whose memory it is, and the session in which tools are called, None: outside of sessions. Decided by the login,
    never by a request."""

    user: str
    session: str | None = None


class Handlers:
    """What the server answers. `who` tells from a request's context whose it is."""

    def __init__(self, memoir: AsyncMemoir, who: Callable[[Any], Who]) -> None:
        self.memoir = memoir
        self.who = who

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        has_session = self.who(context).session is not None
        tools = [tool for tool in await self.memoir.memory_tools("mcp") if has_session or not _needs_session(tool)]
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in tools])

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        who = self.who(context)
        if params.name not in {tool["name"] for tool in await self.memoir.memory_tools("mcp")}:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}")
        try:
            answer = await self._call_tool(who, params.name, dict(params.arguments or {}))
        except MemoirError as error:  # what the model can't mend, as an answer all the same: it can say so
            answer = f"Error: {error.message}"
        except (psycopg.Error, TimeoutError, OSError):
            answer = "Error: memory is out of reach at the moment. Go on without it."
        content: list[Any] = [types.TextContent(type="text", text=answer)]
        return types.CallToolResult(content=content, is_error=answer.startswith("Error: "))

    async def list_resources(self, context: Any, params: Any) -> types.ListResourcesResult:
        self.who(context)
        members = ("uri", "name", "title", "description")
        rows = [{name: row[name] for name in members} for row in await self.memoir.memory_resources()]
        return types.ListResourcesResult(resources=[types.Resource(mime_type=JSON, **row) for row in rows])

    async def list_templates(self, context: Any, params: Any) -> types.ListResourceTemplatesResult:
        self.who(context)
        found = [
            types.ResourceTemplate(
                uri_template=row["template"],
                name=f"{row['name']} item",
                description=f"One of {row['uri']}",
                mime_type=JSON,
            )
            for row in await self.memoir.memory_resources()
            if row.get("template")
        ]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def read_resource(self, context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        who, uri = self.who(context), str(params.uri)
        found = await self._read_resource(who, uri)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown resource {uri}", {"uri": uri})
        text = json.dumps(found, ensure_ascii=False, default=str)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=JSON, text=text)])

    async def _call_tool(self, who: Who, name: str, arguments: dict[str, Any]) -> str:
        try:
            return await self.memoir.call_memory_tool(who.user, who.session, name, arguments)
        except UnknownSessionError:  # the first call of it
            assert who.session is not None
            await self.memoir.open_session(who.user, who.session)
            return await self.memoir.call_memory_tool(who.user, who.session, name, arguments)

    async def _read_resource(self, who: Who, uri: str) -> Any:
        """A descriptor, a session's turns, or a memory; None where there is none."""
        for resource in await self.memoir.memory_resources():
            if uri == resource["uri"]:
                return resource
        if session := re.fullmatch(r"memoir://episodic/(.+)", uri):
            try:
                return await self.memoir.history(who.user, unquote(session[1]))
            except UnknownSessionError:
                return None
        if memory := re.fullmatch(r"memoir://semantic/([0-9a-fA-F-]{36})", uri):
            try:
                return next(iter(await self.memoir.memory_get(who.user, [UUID(memory[1])])), None)
            except (ValueError, UnknownMemoryError):
                return None
        return None


def _needs_session(tool: dict[str, Any]) -> bool:
    return bool(tool.get("_meta", {}).get("pg_memoir/needsSession"))


def make_server(memoir: AsyncMemoir, who: Callable[[Any], Who]) -> Server[Any]:
    """The server, for any transport."""
    handlers = Handlers(memoir, who)
    return Server(
        "pg_memoir",
        version=__version__,
        title="pg_memoir",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )


async def serve_stdio(memoir: AsyncMemoir, who: Who) -> None:
    """Serves standard input and output until the client is gone."""
    server = make_server(memoir, lambda _: who)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
