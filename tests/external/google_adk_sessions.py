"""The session service's tests of google/adk-python, MemoirSessionService in the place of theirs."""

from dataclasses import replace
from typing import Any

from pg_memoir.call import Call
from pg_memoir_integrations.google_adk import MemoirSessionService
from theirs import adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401


class Apart:
    """A client that gives each service users of its own: their tests share one name."""

    def __init__(self) -> None:
        self.mark = somebody()

    def run(self, call: Call[Any]) -> Any:
        return memoir().run(replace(call, params=call.params | {"user": f"{self.mark} {call.params['user']}"}))


def get_session_service(*ignored: Any) -> MemoirSessionService:
    return MemoirSessionService(Apart())  # type: ignore[arg-type]


adopt(
    module("tests.unittests.sessions.test_session_service"),
    globals(),
    r"temp:key",  # since then temporary state stays with the session in hand
    get_session_service=get_session_service,
)
