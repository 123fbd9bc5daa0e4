"""Sends events to webhooks, signed as Standard Webhooks say (standardwebhooks.com).

An address is looked up once, checked, and called as it was checked, so that a name can't lead inside at the second
look-up. Redirects are not followed, and of an answer only its status is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
from pg_memoir import Memoir
from pg_memoir.types import AsideEvent, Event, WebhookClaim
from standardwebhooks import Webhook as Signer

from .repeat import Step, repeat

log = logging.getLogger("pg_memoir.worker")

LANES = 8  # so many users' events are sent at a time
SECONDS = 15.0  # so long a receiver may take in all
GONE = 410
TRIES = 12  # of an event, before it may be set aside: they take at least 64 minutes
ASIDE = 1000  # so many events are kept aside for an URL


class Refused(Exception):
    """An event that was not taken. `final`: the receiver wants no more; `answered`: it said so itself, by a status."""

    def __init__(self, reason: str, final: bool = False, answered: bool = False) -> None:
        super().__init__(reason)
        self.final, self.answered = final, answered


class Sender:
    """Sends to URLs outside, over https. `allow_local`: also over http and to addresses of this machine and network."""

    def __init__(self, allow_local: bool = False) -> None:
        self._allow_local = allow_local
        self._client = httpx.AsyncClient(timeout=SECONDS, follow_redirects=False, trust_env=False)
        # A loop of its own, because only a task can be ended while a receiver sends its answer byte by byte.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="webhooks", daemon=True)
        self._thread.start()

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def send(self, url: str, secret: str, event: Event) -> int:
        """Sends an event and returns the status. Raises Refused."""
        target = self._resolve(url)
        body = json.dumps({"type": event["type"], "timestamp": event["timestamp"], "data": event["data"]})
        identity, now = f"evt_{event['id']}", datetime.now(UTC)
        headers = {
            "host": target.host,
            "content-type": "application/json",
            "user-agent": "pg_memoir",
            "webhook-id": identity,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": _sign(secret, identity, now, body),
        }
        try:
            request = self._client.build_request("POST", target.url, content=body, headers=headers)
            request.extensions["sni_hostname"] = target.name
            status = asyncio.run_coroutine_threadsafe(self._post(request), self._loop).result()
        except httpx.HTTPError as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        except TimeoutError:
            raise Refused(f"no answer within {SECONDS:.0f} seconds") from None
        if not httpx.codes.is_success(status):
            raise Refused(f"status {status}", status == GONE, answered=True)
        return status

    async def _post(self, request: httpx.Request) -> int:
        async with asyncio.timeout(SECONDS):
            answer = await self._client.send(request, stream=True)
            await answer.aclose()
            return answer.status_code

    def _resolve(self, url: str) -> _Target:
        """Returns where an URL leads. Raises Refused for what is not outside."""
        try:
            given = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise Refused(f"the URL can't be read: {error}") from None
        if given.scheme != "https" and not self._allow_local:
            raise Refused(f"the URL begins with {given.scheme}://, only https:// is allowed without --allow-local")
        try:
            port = given.port or (443 if given.scheme == "https" else 80)
            found = socket.getaddrinfo(given.host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Refused(f"the host {given.host} is not known: {error}") from None
        addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in found]
        inside = [str(address) for address in addresses if not is_outside(address)]
        if inside and not self._allow_local:
            raise Refused(f"{given.host} has the address {inside[0]}, which is not of the public internet")
        return _Target(given.copy_with(host=str(addresses[0])), given.netloc.decode("ascii"), given.host)


class _Target:
    """An URL with an address for its host, the header Host, and the name that the certificate must have."""

    def __init__(self, url: httpx.URL, host: str, name: str) -> None:
        self.url, self.host, self.name = url, host, name


def is_outside(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Is it an address of the public internet? One that holds an IPv4 address is what that is."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return is_outside(inner)
        if address in ipaddress.IPv6Network("64:ff9b::/96"):
            return is_outside(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.is_site_local:  # the former private addresses, which Python calls global
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _sign(secret: str, identity: str, at: datetime, body: str) -> str:
    try:
        return Signer(secret).sign(identity, at, body)
    except Exception as error:  # whatever base64 says of a secret that somebody gave
        raise Refused(f"the secret can't be used: {error}. It must be whsec_ and base64") from None


def describe_test() -> Event:
    """Returns the event of `pg-memoir webhooks test`."""
    now = datetime.now(UTC)
    return {"id": int(now.timestamp()), "type": "webhook.test", "timestamp": now.isoformat(), "data": {}, "cursor": ""}


def run_webhooks(
    memoir: Memoir,
    sender: Sender,
    *,
    limit: int = 200,
    interval: float = 5.0,
    once: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Sends events to webhooks until `stop` is set, or until none is left with `once`; returns how many were sent.

    Any number may run at once. What a killed one had sent and not noted is sent again, under the same webhook-id.
    """

    def step() -> Step:
        claim = memoir.claim_webhook(limit=limit)
        if claim is None:
            return Step(0, more=False)
        sent = _deliver(memoir, sender, claim)
        return Step(sent, more=True)

    return repeat("webhooks", step, interval=min(interval, 1.0), once=once, stop=stop)


def _deliver(memoir: Memoir, sender: Sender, claim: WebhookClaim) -> int:
    """Sends a claim's events and notes how far that came; returns how many were sent."""
    events = claim["events"]
    lanes: list[list[Event]] = [[] for _ in range(LANES)]
    for event in events:
        lanes[hash(event["data"].get("user_id", "")) % LANES].append(event)
    may_skip = claim.get("failures", 0) >= TRIES and len(claim.get("aside", [])) < ASIDE and events
    told = _Told({}, set(), events[0]["id"] if may_skip else None)
    lease = [(claim["work_id"], claim["lease_id"])]
    with memoir.keeping(lease), ThreadPoolExecutor(LANES) as pool:  # type: ignore[arg-type]
        work = [pool.submit(_send_lane, sender, claim, lane, told) for lane in lanes if lane]
        for one in work:
            one.result()
    # A receiver that takes others refuses this event, and is not away.
    aside = None
    if told.sent and (refused := told.problems.get(told.suspect)) and told.skips(events[0]["id"], refused):
        aside = _set_aside(events[0], told.problems.pop(events[0]["id"]))
    problems = list(told.problems.values())
    cursor: str | None = None if problems else claim["cursor"]
    for event in events:  # behind the first that was not taken nothing counts
        if problems and event["id"] not in told.sent and not (aside and event["id"] == aside["event"]):
            break
        cursor = event["cursor"] if problems else cursor
    problem = problems[0] if problems else None
    state = memoir.store_webhook(
        claim["work_id"],
        claim["lease_id"],
        cursor,
        str(problem) if problem else None,
        any(one.final for one in problems),
        aside,
    )
    if aside:
        log.warning("webhook %s: event %s is set aside: %s", claim["work_id"], aside["event"], aside["error"])
    if problem:
        log.warning("webhook %s is %s: %s", claim["work_id"], state, problem)
    return len(told.sent)


@dataclass
class _Told:
    """What became of a claim's events. `suspect`: the id of one whose refusal does not end its lane."""

    problems: dict[int | None, Refused]
    sent: set[int]
    suspect: int | None

    def skips(self, number: int, problem: Refused) -> bool:
        """Does the lane of this event go on behind it? Only a receiver's own answer is about the event."""
        return number == self.suspect and problem.answered and not problem.final


def _send_lane(sender: Sender, claim: WebhookClaim, events: Sequence[Event], told: _Told) -> None:
    """Sends events one after another, up to the first that is refused."""
    for event in events:
        try:
            sender.send(claim["url"], claim["secret"], event)
        except Refused as problem:
            told.problems[event["id"]] = problem
            if not told.skips(event["id"], problem):
                return
        else:
            told.sent.add(event["id"])


def _set_aside(event: Event, problem: Refused) -> AsideEvent:
    """Returns an event as it is kept aside: its cursor is that of the event before it."""
    step, _, number = event["cursor"].rpartition("/")
    return {"event": event["id"], "after": f"{step}/{int(number) - 1}", "error": str(problem)}


def find_aside(memoir: Memoir, aside: AsideEvent) -> Event | None:
    """Returns an event that was set aside, None if it is no longer kept (outbox_days) or its user was erased."""
    found = memoir.read_events(after=aside["after"], limit=1)["events"]
    return found[0] if found and found[0]["id"] == aside["event"] else None
