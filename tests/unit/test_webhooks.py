"""Webhooks go to addresses of the public internet only, and to the one that was checked."""

import ipaddress
import socket
import threading
from typing import Any

import pytest
from pg_memoir_cli import webhooks
from pg_memoir_cli.webhooks import Refused, Sender, describe_test, is_outside

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize(
    "address, outside",
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.20.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("fec0::1", False),
        ("::7f00:1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:a00:1::", False),
    ],
)
def test_addresses_outside(address: str, outside: bool) -> None:
    assert is_outside(ipaddress.ip_address(address)) == outside


@pytest.mark.parametrize(
    "url, addresses, said",
    [
        ("http://example.org/h", ["93.184.216.34"], "only https:// is allowed"),
        ("https://example.org:nine/h", [], "the URL can't be read"),
        ("https://inside.example/h", ["93.184.216.34", "10.0.0.8"], "10.0.0.8, which is not of the public internet"),
        ("https://[::ffff:127.0.0.1]/h", ["::ffff:127.0.0.1"], "not of the public internet"),
    ],
)
def test_webhooks_do_not_lead_inside(
    url: str, addresses: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with Sender() as sender, pytest.raises(Refused, match=said):
        sender.send(url, SECRET, describe_test())


def test_webhooks_end_at_a_receiver_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that sends a byte now and then does not hold the events of the others."""
    monkeypatch.setattr(webhooks, "SECONDS", 0.5)
    done = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection = listener.accept()[0]
        with connection:
            for letter in b"HTTP/1.1 204 No Content\r\n\r\n":
                if done.wait(0.2):
                    return
                connection.sendall(bytes([letter]))

    with socket.create_server(("127.0.0.1", 0)) as listener, Sender(allow_local=True) as sender:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        with pytest.raises(Refused, match="no answer within"):
            sender.send(f"http://127.0.0.1:{listener.getsockname()[1]}/h", SECRET, describe_test())
        done.set()
        thread.join()
