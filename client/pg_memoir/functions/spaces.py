"""Memory that several people share. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Literal

from ..call import rows, value
from ..types import Space, SpaceMember


class Spaces:
    """Memory that several people share. `in_space` names a member in a space, for `user` of any call."""

    @value
    def create_space(self, user: str, space: str) -> str:
        """Creates a shared space, which `user` then owns. Returns its address for that user, "ada@space:team". Raises
        InvalidArgumentError, NotAuthorizedError."""

    @value
    def grant_space(
        self,
        user: str | None,
        space: str,
        member: str,
        *,
        role: Literal["reader", "writer", "owner"] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Makes `member` a reader (the default), writer or owner of a space. `names`: as whom they speak there
        (default: their user's name). Owners only; `user` None: admins. Raises InvalidArgumentError, NotAuthorizedError,
        UnknownUserError."""

    @value
    def revoke_space(self, user: str | None, space: str, member: str) -> None:
        """Ends a membership: the next call finds nothing of the space. Owners only, or `user` leaves. Raises
        InvalidArgumentError, NotAuthorizedError."""

    @rows
    def list_spaces(self, user: str) -> list[Space]:
        """The spaces of a user, by name."""

    @rows
    def list_space_members(self, user: str | None, space: str) -> list[SpaceMember]:
        """The members of a space that `user` is in, owners first. Raises NotAuthorizedError."""


def in_space(user: str, space: str) -> str:
    """Return the address of a member in a space: `user` of any call."""
    return f"{user}@space:{space}"
