"""Events: events, webhooks."""

from __future__ import annotations

import json
from typing import Annotated, cast

import typer
from pg_memoir.types import EventType

from ..app import AsJson, Dsn, Stop, app, connected
from ..show import Column, table

_EVENTS = "Running it"
Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only these: memory.added, memory.changed, memory.forgotten, job.failed."),
]
Number = Annotated[int, typer.Argument(metavar="WEBHOOK", help="Its number, as `pg-memoir webhooks list` shows it.")]

webhooks = typer.Typer(no_args_is_help=True, help="URLs that events are sent to, by `pg-memoir worker --webhooks`.")
app.add_typer(webhooks, name="webhooks", rich_help_panel=_EVENTS)


@app.command(rich_help_panel=_EVENTS)
def events(
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="CURSOR", help='Behind this event\'s cursor, or "now" (default: all kept).')
    ] = None,
    types: Types = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    dsn: Dsn = "",
) -> None:
    """Print events as JSON lines: memories added, changed and forgotten, jobs that failed.

    They are recorded while setting outbox_days is not 0. Each line has a `cursor`. Keep the last one that you have
    worked off, and go on with --since: nothing is lost, and the last events may come twice.

    `pg-memoir settings outbox_days 7`, then `pg-memoir events --follow --since now`
    """
    wanted = cast("list[EventType] | None", types or None)
    with connected(dsn) as memoir:
        for event in memoir.stream_events(user, after=since, types=wanted, follow=follow):
            print(json.dumps(event, ensure_ascii=False), flush=True)


@webhooks.command("add")
def add_webhook(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://…")],
    types: Types = None,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="PG_MEMOIR_WEBHOOK_SECRET",
            help="whsec_ and base64 (default: a new one). Other processes see an option, but not the variable.",
        ),
    ] = None,
    dsn: Dsn = "",
) -> None:
    """Send events from now on to an URL, signed as Standard Webhooks say. Prints the secret for its receiver.

    An admin's login. It sets outbox_days to 7 if it is 0.
    """
    with connected(dsn) as memoir:
        made = memoir.add_webhook(url, types=cast("list[EventType] | None", types or None), secret=secret)
    print(f"webhook {made['webhook']}, secret {made['secret']}")


@webhooks.command("list")
def list_webhooks(dsn: Dsn = "", json: AsJson = False) -> None:
    """List the webhooks and how they fare. Secrets are not shown. An admin's login."""
    columns: list[Column] = ["webhook", "url", "types", "state", "failures", "failing_since", "last_error"]
    with connected(dsn) as memoir:
        found = [{name: getattr(one, str(name)) for name in columns} for one in memoir.list_webhooks()]
    table(found, columns, json=json, nothing="no events are sent anywhere")


@webhooks.command("remove")
def remove_webhook(webhook: Number, dsn: Dsn = "") -> None:
    """Send nothing more to a webhook. An admin's login."""
    with connected(dsn) as memoir:
        if not memoir.remove_webhook(webhook):
            raise Stop(f"there is no webhook {webhook}", "pg-memoir webhooks list")


@webhooks.command("enable")
def enable_webhook(webhook: Number, dsn: Dsn = "") -> None:
    """Go on with a disabled webhook where it stopped. An admin's login."""
    with connected(dsn) as memoir:
        if not memoir.retry_work(webhook):
            raise Stop(f"there is no disabled webhook {webhook}", "pg-memoir webhooks list")


@webhooks.command("test")
def test_webhook(
    webhook: Number,
    allow_local: Annotated[bool, typer.Option("--allow-local", help="Also over http and to addresses inside.")] = False,
    dsn: Dsn = "",
) -> None:
    """Send one event of type webhook.test now, from here, and print the answer's status. An admin's login."""
    from ..webhooks import Refused, Sender, describe_test

    with connected(dsn) as memoir:
        hook = next((one for one in memoir.list_webhooks() if one.webhook == webhook), None)
    if hook is None:
        raise Stop(f"there is no webhook {webhook}", "pg-memoir webhooks list")
    with Sender(allow_local) as sender:
        try:
            status = sender.send(hook.url, hook.secret, describe_test())
        except Refused as error:
            raise Stop(f"{hook.url}: {error}") from error
    print(f"{hook.url} answered {status}")
