"""OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from pg_memoir import from_openai

from .dialect import Answer, Item, Message, plain, text_of
from .spans import Body
from .sse import Event


class Chat:
    """Items are messages; an answer is one."""

    name = "openai"
    key = "messages"

    def items(self, body: Body) -> list[Item]:
        return [node.value for node in body.lists.get("messages", [])]

    def opening(self, body: Body) -> str:
        return "\n".join(
            text_of(i.get("content")) for i in self.items(body) if i.get("role") in ("system", "developer")
        )

    def loose(self, item: Item) -> Any:
        role = item.get("role")
        if role in ("system", "developer"):
            return None
        calls = [call.get("id") for call in item.get("tool_calls") or []]
        content = item.get("content")
        said = [["text", text_of(content).strip()]] if isinstance(content, str) or content is None else plain(content)
        if isinstance(said, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in said):
            said = [["text", text_of(content).strip()]]
        return [role, said, item.get("tool_call_id"), calls]

    def answer(self, events: list[Event]) -> Answer | None:
        told = [data for event in events if event.data != "[DONE]" and isinstance(data := event.json(), dict)]
        is_done = any(event.data == "[DONE]" for event in events)  # some servers leave it out
        if (
            not told
            or not is_done
            and not any(c.get("finish_reason") for data in told for c in data.get("choices") or [])
        ):
            return None
        try:
            reply = from_openai(told)
        except ValueError:
            return None
        usage: dict[str, Any] = next((data["usage"] for data in reversed(told) if data.get("usage")), {})
        finish = reply.usage.get("finish_reason")
        return Answer([dict(reply.message)], reply.usage.get("model"), usage, finish, told[0].get("id"))

    def whole(self, answer: Any) -> Answer | None:
        if not isinstance(answer, dict) or not answer.get("choices"):
            return None
        reply = from_openai(answer)
        finish = reply.usage.get("finish_reason")
        return Answer([dict(reply.message)], answer.get("model"), answer.get("usage") or {}, finish, answer.get("id"))

    def messages(self, items: list[Item]) -> list[Message]:
        found = []
        for at, item in enumerate(items, 1):
            if item.get("role") in ("user", "assistant", "tool"):
                kept = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "logprobs")
                message = {key: item[key] for key in kept if item.get(key) is not None}
                if message["role"] == "tool":
                    message["content"] = text_of(message.get("content"))
                elif message["role"] == "assistant":
                    message |= {"content": _join_texts(message["content"])} if "content" in message else {}
                    if "tool_calls" not in message:
                        message.setdefault("content", "")
                found.append(Message(message, at))
        return found


def _join_texts(content: Any) -> Any:
    """Returns a content of texts alone as one text, as most clients send it."""
    is_text = isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content)
    return "".join(part["text"] for part in content) if is_text else content
