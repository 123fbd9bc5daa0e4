"""What goes in and comes out, as types."""

from .answers import *  # noqa: F403
from .events import *  # noqa: F403
from .memories import *  # noqa: F403
from .operations import *  # noqa: F403
from .pages import *  # noqa: F403
from .recalls import *  # noqa: F403
from .record import Record as Record
