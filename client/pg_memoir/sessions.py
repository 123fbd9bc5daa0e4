"""The calls of a session's object: those of its user and session, which need not be given again."""

from __future__ import annotations

from typing import Any

from .call import Call, in_session
from .functions.conversations import Conversations
from .functions.memories import Memories
from .functions.windows import Windows

APPENDING = ("persist_turn", "append_messages")
"""Functions that answer with a turn mark."""


class SessionCalls:
    """What Session and AsyncSession have in common.

    `mark`: the turn mark of the last turn persisted through this object, for `after_turn` on a replica; else None.
    """

    def __init__(self, user: str, name: str, opening: Call[Any] | None) -> None:
        self.user = user
        self.name = name
        self.mark: str | None = None
        self._opening = opening

    def _note_answer(self, call: Call[Any], answer: Any) -> None:
        if call.function in APPENDING:
            self.mark = answer["mark"]

    compile_context = in_session(Conversations.compile_context)
    compile_anthropic = in_session(Conversations.compile_anthropic)
    context = in_session(Conversations.context)
    explain = in_session(Conversations.explain)
    persist_turn = in_session(Conversations.persist_turn)
    append = in_session(Conversations.append)
    branch = in_session(Conversations.branch_session)
    info = in_session(Conversations.session_info)
    history = in_session(Conversations.history)
    summarize = in_session(Conversations.summarize_session)
    compact = in_session(Conversations.compact_session)
    undo_compaction = in_session(Conversations.undo_compaction)
    list_compactions = in_session(Conversations.list_compactions)
    retract_turns = in_session(Conversations.retract_turns)
    append_items = in_session(Conversations.append_items)
    list_items = in_session(Conversations.list_items)
    retract_items = in_session(Conversations.retract_items)
    set_working_memory = in_session(Conversations.set_working_memory)
    call_memory_tool = in_session(Windows.call_memory_tool)
    select_tools = in_session(Windows.select_tools)
    query = in_session(Windows.memory_query)
    query_answer = in_session(Windows.query_answer)
    restore = in_session(Windows.memory_restore)
    release = in_session(Windows.memory_release)
    pressure = in_session(Windows.session_pressure)
    forms = in_session(Windows.window_forms)
    pin = in_session(Memories.pin)
    unpin = in_session(Memories.unpin)
    pin_turns = in_session(Conversations.pin_turns)
    unpin_turns = in_session(Conversations.unpin_turns)
    capture_call = in_session(Conversations.capture_call)
    outline = in_session(Conversations.session_outline)
    pause = in_session(Conversations.pause_session)
    close = in_session(Conversations.close_session)
