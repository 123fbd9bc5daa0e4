"""The commands, in the order of the list that `pg-memoir --help` shows."""

from . import server  # isort: skip
from . import transfer  # isort: skip
from . import look  # isort: skip
from . import change  # isort: skip
from . import experience  # isort: skip
from . import pages  # isort: skip
from . import spaces  # isort: skip
from . import work  # isort: skip
from . import events  # isort: skip
from . import agents  # isort: skip
from . import doctor  # isort: skip

__all__ = [
    "agents",
    "change",
    "doctor",
    "events",
    "experience",
    "look",
    "pages",
    "server",
    "spaces",
    "transfer",
    "work",
]
