"""Local HTTP servers that speak the model providers' protocols, so that tests use the real SDKs without a network."""

from .chat_completions import ChatCompletionsStub
from .messages_api import MessagesStub
from .responses_api import ResponsesStub
from .server import Answer

__all__ = ["Answer", "ChatCompletionsStub", "MessagesStub", "ResponsesStub"]
