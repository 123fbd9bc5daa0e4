"""pg_memoir for agent frameworks, one module each; a module needs its framework alone.

langgraph: MemoirStore (a BaseStore), remembering (a node), recalled (a hook). openai_agents: MemoirSession. anthropic:
MemoirMemoryTool. llama_index: MemoirChatStore, MemoirMemoryBlock. pydantic_ai: MemoirMemory. google_adk:
MemoirSessionService, MemoirMemoryService. langchain: MemoirRetriever, MemoirChatMessageHistory, MemoirVectorStore.
crewai: MemoirStorage. agent_framework: MemoirContextProvider, MemoirHistoryProvider.
"""
