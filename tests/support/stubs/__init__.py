"""Local HTTP servers that speak the model providers' protocols, so that tests use the real SDKs without a network."""

from .providers import ChatCompletionsStub, MessagesStub, ResponsesStub, fake_vector
from .server import Answer

__all__ = ["Answer", "ChatCompletionsStub", "MessagesStub", "ResponsesStub", "fake_vector"]
