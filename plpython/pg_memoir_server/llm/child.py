"""The process that calls: `python -m pg_memoir_server.llm.child`. One JSON object in (config and requests), one line
a result out.

A result: {"id", "output", "usage"} or {"id", "error", "usage", "final", "retry_after"}; usage is {"prompt_tokens",
"completion_tokens"} of all tries, since a useless answer is paid for too.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from . import prompts, providers
from .providers import CallFailed, Completion
from .schema import BadAnswer, parse

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 20.0  # seconds; a server that wants longer gets its calls from a later run


def answer(
    provider: Any, request: dict[str, Any], timeout: float, retries: int, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """One request's result: called, checked, put right once by the model itself where the check fails."""
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    try:
        prompt = prompts.load(request["kind"])
        messages = [{"role": "user", "content": prompt.user(request["input"])}]
        for attempt in (1, 2):
            done = _with_retries(
                lambda: provider.complete(prompt.system, messages, prompt.max_tokens, timeout), retries, sleep
            )
            usage["prompt_tokens"] += done.prompt_tokens
            usage["completion_tokens"] += done.completion_tokens
            try:
                return {
                    "id": request["id"],
                    "output": parse(done.text, prompt.schema),
                    "prompt": prompt.version,
                    "usage": usage,
                }
            except BadAnswer as error:
                problem = str(error) if done.complete else f"it was cut off or refused ({error}); answer with less"
                if attempt == 2:
                    return {
                        "id": request["id"],
                        "error": f"bad answer, twice: {problem}",
                        "final": True,
                        "usage": usage,
                    }
                again = f"That can't be used: {problem}. Answer again, with nothing but the JSON object."
                messages += [
                    {"role": "assistant", "content": done.text.strip() or "(nothing)"},
                    {"role": "user", "content": again},
                ]
    except KeyError as error:
        return {"id": request.get("id"), "error": f"bad request: {error}", "final": True, "usage": usage}
    except CallFailed as error:
        return {
            "id": request["id"],
            "error": str(error),
            "final": not error.again,
            "retry_after": error.wait,
            "usage": usage,
        }
    raise AssertionError("unreachable")


def _with_retries(call: Callable[[], Completion], retries: int, sleep: Callable[[float], None]) -> Completion:
    for attempt in range(retries + 1):
        try:
            return call()
        except CallFailed as error:
            backoff = min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt) * (0.5 + random.random() / 2)
            if not error.again or attempt == retries or (error.wait or 0) > _LONGEST_WAIT:
                raise
            sleep(max(error.wait or 0, backoff))
    raise AssertionError("unreachable")


def main() -> int:
    given = json.load(sys.stdin)
    config = given["config"]
    out = sys.stdout
    key = None
    try:
        key = providers.key_of(config["provider"]) if config["provider"] in ("anthropic", "openai") else None
        provider = providers.make(config)
    except CallFailed as error:
        # Nothing was asked yet and an admin can put it right, so it is no fault of the work.
        out.write(json.dumps({"unavailable": str(error)}) + "\n")
        return 0
    for request in given["requests"]:
        line = json.dumps(answer(provider, request, float(config["timeout"]), int(config["retries"])))
        out.write((line.replace(key, "***") if key else line) + "\n")
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
