"""The JSON object in a model's answer, and the part of JSON Schema that our prompts use.

With `"each": true` an array loses the items that are not as they should be, and stands without them.
"""

from __future__ import annotations

import json
import re
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class BadAnswer(ValueError):
    """The answer is not what the schema asks for; the message says where, in words a model can act on."""


def parse(text: str, schema: dict[str, Any]) -> Any:
    """The answer's JSON object, also out of a code fence or with words around it."""
    fenced = re.search(r"```(?:json)?\s*\n(.*?)```", text, re.S)
    body = fenced[1] if fenced else text[max(0, text.find("{")) :]
    try:
        found, _ = json.JSONDecoder().raw_decode(body.strip())
    except (ValueError, RecursionError) as error:
        raise BadAnswer("the answer is empty" if not text.strip() else f"no complete JSON object: {error}") from None
    problem = check(found, schema, "answer")
    if problem:
        raise BadAnswer(problem)
    return found


def check(value: Any, schema: dict[str, Any], where: str) -> str | None:
    """What is wrong with a value; None if nothing."""
    wanted = schema.get("type")
    if wanted:
        kinds = [wanted] if isinstance(wanted, str) else wanted
        if not any(
            isinstance(value, _TYPES[kind]) and (isinstance(value, bool) <= (kind == "boolean")) for kind in kinds
        ):
            return f"{where} must be of type {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
            return f"{where} holds a character that can't be stored"
        if len(value) < schema.get("minLength", 0):
            return f"{where} is too short"
        if len(value) > schema.get("maxLength", 1 << 30):
            return f"{where} is longer than {schema['maxLength']} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return f"{where} must match {schema['pattern']}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # Written so that NaN fails too.
        if not schema.get("minimum", float("-inf")) <= value <= schema.get("maximum", float("inf")):
            return f"{where} must be from {schema.get('minimum')} to {schema.get('maximum')}"
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", 1 << 30):
            return f"{where} has more than {schema['maxItems']} items"
        if schema.get("each"):
            value[:] = [item for item in value if check(item, schema.get("items", {}), where) is None]
        for index, item in enumerate(value):
            problem = check(item, schema.get("items", {}), f"{where}[{index}]")
            if problem:
                return problem
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                return f"{where} lacks {name}"
        for name, item in value.items():
            if name not in known:
                if schema.get("additionalProperties", True) is False:
                    return f"{where} may not have {name[:40]}"
                continue
            problem = check(item, known[name], f"{where}.{name}")
            if problem:
                return problem
    return None
