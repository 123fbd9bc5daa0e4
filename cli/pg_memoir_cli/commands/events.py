"""Events: events, webhooks."""

from __future__ import annotations

import json
from typing import Annotated, cast

import typer
from pg_memoir import Memoir
from pg_memoir.types import EventType, Webhook

from ..app import ATTENTION, OK, AsJson, Dsn, Stop, app, connected
from ..show import Column, table

_EVENTS = "Running it"
Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only these: memory.added, memory.changed, memory.forgotten, job.failed."),
]
Number = Annotated[int, typer.Argument(metavar="WEBHOOK", help="Its number, as `pg-memoir webhooks list` shows it.")]

AllowLocal = Annotated[
    bool, typer.Option("--allow-local", help="Also over http and to addresses inside.", show_default=False)
]

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
    columns: list[Column] = ["webhook", "url", "types", "state", "failures", "failing_since", "last_error", "aside"]
    with connected(dsn) as memoir:
        found = [{name: getattr(one, str(name)) for name in columns} for one in memoir.list_webhooks()]
    for one in found:
        one["aside"] = len(one["aside"])
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


def _find_webhook(memoir: Memoir, number: int) -> Webhook:
    found = next((one for one in memoir.list_webhooks() if one.webhook == number), None)
    if found is None:
        raise Stop(f"there is no webhook {number}", "pg-memoir webhooks list")
    return found


@webhooks.command("aside")
def list_aside(webhook: Number, dsn: Dsn = "", json: AsJson = False) -> None:
    """List the events that the receiver always refused, so that others behind them could go on. An admin's login."""
    with connected(dsn) as memoir:
        found = _find_webhook(memoir, webhook).aside
    table([dict(one) for one in found], ["event", "error", "after"], json=json, nothing="no event is set aside")


@webhooks.command("resend")
def resend(
    webhook: Number,
    events: Annotated[list[int] | None, typer.Argument(metavar="EVENT…", help="Only these, by number.")] = None,
    allow_local: AllowLocal = False,
    dsn: Dsn = "",
) -> int:
    """Send events again that were set aside, from here, oldest first. An admin's login.

    An event that is taken leaves the list. Ends with 3 if one is refused again, or is not kept any more (setting
    outbox_days, or its user was erased).
    """
    from ..webhooks import Refused, Sender, find_aside

    code = OK
    with connected(dsn) as memoir, Sender(allow_local) as sender:
        hook = _find_webhook(memoir, webhook)
        unknown = set(events or ()) - {one["event"] for one in hook.aside}
        if unknown:
            raise Stop(f"event {min(unknown)} is not set aside", f"pg-memoir webhooks aside {webhook}")
        for one in hook.aside:
            if events and one["event"] not in events:
                continue
            event = find_aside(memoir, one)
            try:
                told = f"answered {sender.send(hook.url, hook.secret, event)}" if event else "is not kept any more"
                memoir.remove_webhook(webhook, one["event"])
            except Refused as error:
                told, event = str(error), None
            code = code if event else ATTENTION
            print(f"event {one['event']}: {told}")
    return code


@webhooks.command("test")
def test_webhook(webhook: Number, allow_local: AllowLocal = False, dsn: Dsn = "") -> None:
    """Send one event of type webhook.test now, from here, and print the answer's status. An admin's login."""
    from ..webhooks import Refused, Sender, describe_test

    with connected(dsn) as memoir:
        hook = _find_webhook(memoir, webhook)
    with Sender(allow_local) as sender:
        try:
            status = sender.send(hook.url, hook.secret, describe_test())
        except Refused as error:
            raise Stop(f"{hook.url}: {error}") from error
    print(f"{hook.url} answered {status}")
