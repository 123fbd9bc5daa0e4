"""Anthropic's memory tool over PostgreSQL: the model's notes outlive the conversation."""

import os

import anthropic
from pg_memoir import Memoir
from pg_memoir_integrations.anthropic import MemoirMemoryTool

llm, memoir = anthropic.Anthropic(), Memoir(os.environ["PG_MEMOIR_DSN"])
tool = MemoirMemoryTool(memoir, user="alice")
messages = [{"role": "user", "content": "Note that I read the paper edition."}]

while True:  # or llm.beta.messages.tool_runner(tools=[tool], ...)
    answer = llm.beta.messages.create(
        model="claude-sonnet-4-6", max_tokens=1000, tools=[tool.to_dict()], messages=messages
    )
    asked = [block for block in answer.content if block.type == "tool_use"]
    if not asked:
        break
    results = [{"type": "tool_result", "tool_use_id": each.id, "content": tool.call(each.input)} for each in asked]
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
print(answer.content[0].text)
for file in memoir.search_documents("alice", ["memories"]):
    print("/".join([*file.namespace, file.key]), "·", file.value["text"])
memoir.close()
