"""What the MCP conformance suite asks a server under test to have, beside what it offers anyway: tools that answer with each
kind of content, resources of each kind. For the tests alone."""

import json
from typing import Any

import mcp_types as types
from pg_memoir_gateway.mcp_server import Handlers

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def _embedded(uri: str, kind: str, text: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


IMAGE = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
CONTENT: dict[str, list[Any]] = {
    "test_image_content": [IMAGE],
    "test_audio_content": [types.AudioContent(type="audio", data=SOUND, mime_type="audio/wav")],
    "test_embedded_resource": [_embedded("test://embedded-resource", "text/plain", "This is an embedded resource.")],
    "test_multiple_content_types": [
        types.TextContent(type="text", text="Multiple content types test:"),
        IMAGE,
        _embedded("test://mixed-content-resource", "application/json", '{"test": "data"}'),
    ],
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


TEXTS = {
    "test_simple_text": "This is a simple text response for testing.",
    "test_error_handling": "Error: This tool intentionally returns an error for testing",
}


class Fixtures(Handlers):
    """The server's handlers, with those tools and resources."""

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        listed = await super().list_tools(context, params)
        schemas = dict.fromkeys((*TEXTS, *CONTENT), NO_ARGUMENTS) | {"json_schema_2020_12_tool": SCHEMA}
        made = [
            types.Tool.model_validate({"name": name, "description": "For the suite.", "inputSchema": schema})
            for name, schema in schemas.items()
        ]
        return types.ListToolsResult(tools=[*listed.tools, *made])

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name in CONTENT:
            return types.CallToolResult(content=CONTENT[params.name])
        if text := TEXTS.get(params.name):
            content = [types.TextContent(type="text", text=text)]
            return types.CallToolResult(content=content, is_error=text.startswith("Error"))
        return await super().call_tool(context, params)

    async def read_resource(self, context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        found: Any = None
        if uri == "test://static-text":
            found = types.TextResourceContents(uri=uri, mime_type="text/plain", text="This is a static text resource.")
        elif uri == "test://static-binary":
            found = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
        elif uri.startswith("test://template/"):
            text = json.dumps({"id": uri.split("/")[3], "templateTest": True})
            found = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[found]) if found else await super().read_resource(context, params)
