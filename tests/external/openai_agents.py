"""The session tests of openai/openai-agents-python, MemoirSession in the place of SQLiteSession and SQLAlchemySession."""

from typing import Any

from pg_memoir_integrations.openai_agents import MemoirSession
from theirs import adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401

USERS: dict[Any, str] = {}


class SQLiteSession(MemoirSession):
    """A file of theirs is a user of ours, memory a user of its own."""

    def __init__(self, session_id: str, db_path: Any = ":memory:", *args: Any, session_settings: Any = None) -> None:
        place = USERS.setdefault(str(db_path), somebody()) if str(db_path) != ":memory:" else somebody()
        super().__init__(session_id, memoir(), user=place, session_settings=session_settings)

    @classmethod
    def from_url(cls, session_id: str, *, url: str, session_settings: Any = None, **options: Any) -> "SQLiteSession":
        return cls(session_id, session_settings=session_settings)

    def close(self) -> None:
        pass


INSIDES = (
    r"\w\._\w|sqlite3|_await_mutation|create_async_engine|engine|SQLiteSession is closed|corrupt|_TrackingSession|fork"
    r"|_tables|file_lock|custom_table|with tempfile[^\n]*\n[^\n]*\n[^\n]*closed"
)
adopt(module("tests.memory.test_session"), globals(), INSIDES, SQLiteSession=SQLiteSession)
adopt(module("tests.memory.test_session_limit"), globals(), INSIDES, "limit_", SQLiteSession=SQLiteSession)
theirs = module("tests.extensions.memory.test_sqlalchemy_session")
insides = r"\w\._\w|sqlite3|engine|corrupt|select\(|shared_init_lock"
adopt(theirs, globals(), insides, "sqlalchemy_", SQLAlchemySession=SQLiteSession)
