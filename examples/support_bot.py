"""A support bot for two shops on one database. Each shop has a login of its own, and the database keeps them apart.

    python support_bot.py bikes sam < question.txt     # a customer of one shop, one line a message
    python support_bot.py books sam                    # the same name at the other shop is another person

README.md beside this file says how to make the logins.
"""

import os
import sys
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import openai
from pg_memoir import Memoir, ToolCall, from_openai, tool_result

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o")
HANDBOOK = "handbook"  # the user that holds a shop's own texts; customers are "customer:NAME"
SEARCH = {
    "type": "function",
    "function": {
        "name": "search_handbook",
        "description": "Finds rules of the shop.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


@dataclass
class Shop:
    """A tenant: its name, its texts, and its connection. The login of the connection decides what can be reached."""

    name: str
    rules: list[str]
    memoir: Memoir = field(init=False)

    def __post_init__(self) -> None:
        self.memoir = Memoir(os.environ[f"{self.name.upper()}_DSN"])
        documents = [
            {"namespace": ["rules"], "key": str(number), "value": {"text": text}}
            for number, text in enumerate(self.rules)
        ]
        self.memoir.put_documents(HANDBOOK, documents)

    def run_tool(self, call: ToolCall) -> dict[str, Any]:
        """Returns the answer to a tool call of the model."""
        if call.name != "search_handbook":
            return tool_result(call, f"There is no tool {call.name}.")
        found = self.memoir.search_documents(HANDBOOK, ["rules"], str(call.arguments.get("query", "")), limit=3)
        return tool_result(call, [document.value["text"] for document in found])

    def answer(self, llm: openai.OpenAI, customer: str, ticket: str, question: str) -> str:
        """Answers a message of a customer, and stores each step as it happens."""
        session = self.memoir.session(
            f"customer:{customer}",
            ticket,
            model=MODEL,
            system_prompt=f"You are the support desk of a shop for {self.name}. Look up rules before you state them.",
        )
        session.append([{"role": "user", "content": question}])
        while True:
            messages = session.compile_context(tools=[SEARCH])
            reply = from_openai(llm.chat.completions.create(model=MODEL, messages=messages, tools=[SEARCH]))
            results = [self.run_tool(call) for call in reply.tool_calls]
            session.append([reply.message, *results], usage=reply.usage)
            if not results:
                return reply.text


RULES = {
    "bikes": ["Bicycles can be returned within 30 days.", "Repairs take a week. We lend you a bicycle meanwhile."],
    "books": ["Books can be returned within 14 days if they are unread.", "Readings are on the first Friday."],
}


def main() -> None:
    """Answers the lines of standard input."""
    if len(sys.argv) != 3 or sys.argv[1] not in RULES:
        sys.exit(f"usage: support_bot.py {'|'.join(RULES)} CUSTOMER")
    name, customer = sys.argv[1:]
    shop = Shop(name, RULES[name])
    with shop.memoir, openai.OpenAI() as llm:
        for line in sys.stdin:
            if question := line.strip():
                print(shop.answer(llm, customer, f"ticket of {date.today()}", question), flush=True)


if __name__ == "__main__":
    main()
