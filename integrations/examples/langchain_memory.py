"""LangChain over PostgreSQL: a handbook as a vector store, a chat history, and the compiled list for a chat model."""

import os

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pg_memoir import Memoir
from pg_memoir_integrations.langchain import MemoirChatMessageHistory, MemoirRetriever, MemoirVectorStore

memoir, llm = Memoir(os.environ["PG_MEMOIR_DSN"]), ChatOpenAI(model="gpt-4o")

embeddings = OpenAIEmbeddings(check_embedding_ctx_length=False)
handbook = MemoirVectorStore(memoir, "library", embeddings, collection="handbook")
handbook.add_texts(["The reading room closes at nine.", "Maps are on the second floor."], [{"floor": 1}, {"floor": 2}])
print(handbook.similarity_search("Where are the maps?", k=1, filter={"floor": {"$gt": 1}})[0].page_content)

# A history keeps messages as they came, and its retriever finds them from any session.
history = MemoirChatMessageHistory(memoir, "alice", "monday")
history.add_user_message("I can't eat peanuts.")
history.add_message(llm.invoke(history.messages))
print(MemoirRetriever(memoir=memoir, user="alice", k=1).invoke("What can't I eat?")[0].page_content)

# Better than sending a history whole: the session's window, and what other sessions say about the question.
question = HumanMessage("Which snack may I eat on the flight?")
friday = MemoirChatMessageHistory(memoir, "alice", "friday")
answer = llm.invoke(memoir.compile_context("alice", "friday", question.text))
friday.add_messages([question, answer])
print(answer.text)
memoir.close()
