"""A LangGraph agent with a tool. It knows in a new thread what it heard in another one.

python agent.py alice monday "I can't eat peanuts, and our flight to Madeira is on 9 April 2027."
python agent.py alice friday "How many days are left until our flight? And which snack may I bring?"
"""

import os
import sys
from datetime import date
from typing import Any

import openai
from langchain_core.messages import AnyMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pg_memoir import Memoir
from pg_memoir_integrations.langgraph import recalled, remembered

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o")
SYSTEM = "You are a travel agent. Answer briefly."


class State(MessagesState):
    """The messages of this run, and the list that the model gets: compiled from them and from memory."""

    llm_input_messages: list[AnyMessage]


@tool
def days_until(day: str) -> str:
    """Counts the days from today until a day, which is given as YYYY-MM-DD."""
    try:
        return str((date.fromisoformat(day) - date.today()).days)
    except ValueError as error:
        return f"{error}. Give the day as YYYY-MM-DD."


TOOLS = [days_until]


def build_agent(memoir: Memoir, llm: openai.OpenAI, user: str, thread: str) -> CompiledStateGraph[Any]:
    """Builds the graph: recall, ask the model, run its tools until it has answered, remember."""

    def ask_model(state: State) -> dict[str, Any]:
        answer = llm.chat.completions.create(
            model=MODEL,
            messages=convert_to_openai_messages(state["llm_input_messages"]),
            tools=[convert_to_openai_tool(each) for each in TOOLS],
        )
        return {"messages": convert_to_messages([answer.choices[0].message.model_dump()])}

    builder = StateGraph(State)
    # Stores what is new, such as results of tools, and compiles the list for the model.
    builder.add_node("recall", recalled(memoir, user, thread, model=MODEL, system_prompt=SYSTEM))
    builder.add_node("model", ask_model)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_node("remember", remembered(memoir, user, thread))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "model")
    builder.add_conditional_edges("model", tools_condition, {"tools": "tools", "__end__": "remember"})
    builder.add_edge("tools", "recall")
    return builder.compile()


def main() -> None:
    """Answers one question."""
    if len(sys.argv) != 4:
        sys.exit('usage: agent.py USER THREAD "QUESTION"')
    user, thread, question = sys.argv[1:]
    with Memoir(os.environ["PG_MEMOIR_DSN"]) as memoir, openai.OpenAI() as llm:
        agent = build_agent(memoir, llm, user, thread)
        print(agent.invoke({"messages": [("user", question)]})["messages"][-1].content)


if __name__ == "__main__":
    main()
