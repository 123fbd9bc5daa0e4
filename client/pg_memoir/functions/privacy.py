"""Who sees what; taking out, putting back. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any

from ..arguments import Lines, Name, Object, Text
from ..call import calls, value, values
from ..types import Sensitivity


class Privacy:
    """Who sees what; taking out, putting back."""

    @value
    def mark_turn(
        self, user: str, session: str, turn: int, *, sensitivity: Sensitivity | None = None, reason: Text | None = None
    ) -> dict[str, Any]:
        """Says how secret a stored turn is from now on: 'normal', 'private' or 'secret' (default). Made stricter, so do
        the memories that came of it; lowering takes a person with the clearance to see it. Raises UnknownSessionError,
        InvalidArgumentError, NotAuthorizedError."""

    @value
    def annotate_turn(self, user: str, session: str, turn: int, annotations: Object) -> dict[str, Any]:
        """Says something about a stored turn (feedback, a flag): keys of an object, None takes one away. history
        returns it as "annotations"; nothing is recalled or sent because of it. Returns {"turn_index", "annotations"}.
        Raises UnknownSessionError, InvalidArgumentError."""

    @value
    def erase_turn(self, user: str, session: str, turn: int) -> dict[str, Any]:
        """Erases one turn (a tool call with its results) and everything that stems from it; returns rows by table.
        Raises UnknownSessionError, InvalidArgumentError, NotAuthorizedError."""

    @value
    def erase_session(self, user: str, session: str) -> dict[str, Any]:
        """Erases a session and everything that stems from it; returns rows by table. Raises UnknownSessionError,
        NotAuthorizedError."""

    @value
    def erase_user(self, user: str) -> dict[str, Any]:
        """Erases every row of a user in every table; returns them by table. The job 'erase' then takes the bytes out of
        the files. Raises NotAuthorizedError."""

    @values
    @calls("export_user", cast="::text")
    def export_user(self, user: str, *, embeddings: bool | None = None) -> list[str]:
        """All that is kept of a user, as lines of JSON, in memory at once (export_lines reads them as they come). For
        admins and services with clearance secret. Raises UnknownUserError, NotAuthorizedError."""

    @value
    def import_user(self, user: str, lines: Lines) -> dict[str, dict[str, int]]:
        """Puts back some lines of an export, one transaction; import_lines takes all of them. Returns rows by table
        under 'imported', 'present' and 'refused'. Admin only. Raises InvalidArgumentError, NotAuthorizedError."""

    @value
    def bind_login(
        self,
        login: Name,
        *,
        users: Sequence[str] | None = None,
        actor: str | None = None,
        projects: Sequence[str] | None = None,
        clearance: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Binds a database login to users, projects, an actor class, a clearance and a namespace; None leaves users or
        projects unlimited. Admin only. Raises NotAuthorizedError, InvalidArgumentError."""

    @value
    def unbind_login(self, login: Name) -> None:
        """Removes a login's binding. Admin only. Raises NotAuthorizedError, InvalidArgumentError."""
