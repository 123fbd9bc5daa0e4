"""Shared spaces: create one, say who may do what in it, list spaces and members."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..app import AsJson, Dsn, User, app, connected
from ..show import table

_SPACES = "Shared spaces"
space_app = typer.Typer(no_args_is_help=True, help="Share memory: create spaces, add members, remove them.")
app.add_typer(space_app, name="space", rich_help_panel=_SPACES)
Space = Annotated[str, typer.Argument(help="The name of the space.")]
Member = Annotated[str, typer.Argument(help="The member's user name.")]


class Role(StrEnum):
    """Roles in a space."""

    reader = "reader"
    writer = "writer"
    owner = "owner"


@space_app.command()
def create(user: User, space: Space, dsn: Dsn = "") -> None:
    """Create a space that USER owns, and print its address for USER.

    `pg-memoir space create ada team`
    """
    with connected(dsn) as memoir:
        print(memoir.create_space(user, space))


@space_app.command()
def grant(
    user: User,
    space: Space,
    member: Member,
    role: Annotated[Role, typer.Option(help="Read; write and correct; or grant and erase, too.")] = Role.reader,
    name: Annotated[list[str] | None, typer.Option(help="As whom they speak there. Repeat it for more.")] = None,
    dsn: Dsn = "",
) -> None:
    """Make MEMBER a member of a space, or change their role. USER is an owner.

    `pg-memoir space grant ada team ben --role writer`
    """
    with connected(dsn) as memoir:
        memoir.grant_space(user, space, member, role=role.value, names=name)
        print(f"{member} is a {role.value} of {space}")


@space_app.command()
def revoke(user: User, space: Space, member: Member, dsn: Dsn = "") -> None:
    """Remove MEMBER from a space. USER is an owner, or MEMBER, who leaves.

    `pg-memoir space revoke ada team ben`
    """
    with connected(dsn) as memoir:
        memoir.revoke_space(user, space, member)
        print(f"{member} is no longer in {space}")


@space_app.command("list")
def list_spaces(user: User, dsn: Dsn = "", json: AsJson = False) -> None:
    """List the spaces of USER.

    `pg-memoir space list ada`
    """
    with connected(dsn) as memoir:
        columns = ["space", "role", "members", "address", "granted_at"]
        table(memoir.list_spaces(user), columns, json=json, nothing="no spaces")


@space_app.command()
def members(user: User, space: Space, dsn: Dsn = "", json: AsJson = False) -> None:
    """List the members of a space that USER is in.

    `pg-memoir space members ada team`
    """
    with connected(dsn) as memoir:
        columns = ["member", "role", "names", "granted_by", "granted_at"]
        table(memoir.list_space_members(user, space), columns, json=json, nothing="no members")
