"""Every call there is, and `calls`, which describes them without running them."""

from ..call import Describer
from .conversations import Conversations
from .documents import Documents
from .events import Events
from .experience import Experience
from .memories import Memories
from .operations import Operations
from .privacy import Privacy
from .spaces import Spaces
from .windows import Windows


class AllCalls(Conversations, Memories, Experience, Spaces, Windows, Documents, Privacy, Operations, Events):
    """What Memoir and AsyncMemoir have in common."""


class Calls(AllCalls, Describer):
    """The same methods, each of which returns its Call."""


calls = Calls()
