"""A LangGraph agent that knows in a new thread what was said in another one."""

import os

import openai
from langchain_core.messages import convert_to_openai_messages
from langgraph.graph import START, MessagesState, StateGraph
from pg_memoir import Memoir
from pg_memoir_integrations.langgraph import MemoirStore, recalled, remembered

memoir = Memoir(os.environ["PG_MEMOIR_DSN"])
llm = openai.OpenAI()


class State(MessagesState):
    llm_input_messages: list


def model(state):
    messages = convert_to_openai_messages(state["llm_input_messages"])
    return {
        "messages": [llm.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message.model_dump()]
    }


def graph(session):
    builder = StateGraph(State)
    builder.add_node("recalled", recalled(memoir, "alice", session, system_prompt="You are a travel agent."))
    builder.add_node("model", model)
    builder.add_node("remembered", remembered(memoir, "alice", session))
    for before, after in ((START, "recalled"), ("recalled", "model"), ("model", "remembered")):
        builder.add_edge(before, after)
    return builder.compile(store=MemoirStore(memoir, user="alice"))


graph("monday").invoke({"messages": [("user", "I can't eat peanuts.")]})
answer = graph("friday").invoke({"messages": [("user", "Which snack may I eat on the flight?")]})
print(answer["messages"][-1].content)
memoir.close()
