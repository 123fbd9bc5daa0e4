"""The gateway's settings: defaults, then one TOML file, then the environment, then the command line. Checked at
once."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

Mode = Literal["observe", "recall", "manage"]
MODES: tuple[str, ...] = get_args(Mode)

UserRole = Literal["person", "mixed", "material"]
"""Whose words the messages of a client's user are: a person's, a person's and programs', or only programs'."""
USER_ROLES: tuple[str, ...] = get_args(UserRole)
# Variables of the environment, and what they set. PG_MEMOIR_GATEWAY_CONFIG names the file.
ENVIRONMENT = {
    "PG_MEMOIR_DSN": "dsn",
    "UPSTREAM_ANTHROPIC": "upstream_anthropic",
    "UPSTREAM_OPENAI": "upstream_openai",
    "PG_MEMOIR_GATEWAY_HOST": "host",
    "PG_MEMOIR_GATEWAY_PORT": "port",
    "PG_MEMOIR_GATEWAY_MODE": "mode",
    "PG_MEMOIR_GATEWAY_USER": "user",
    "PG_MEMOIR_GATEWAY_INSPECT_TOKEN": "inspect_token",
    "PG_MEMOIR_GATEWAY_ALLOWED_HOSTS": "allowed_hosts",
    "PG_MEMOIR_GATEWAY_JOURNAL": "journal",
}
BOUNDS = {
    "port": (0, 65535), "fault_rounds": (0, 32), "recall_tokens": (0, 100_000), "window": (4_000, 10_000_000),
    "database_ms": (1, 60_000),
}  # fmt: skip
HOST = re.compile(r"\*|null|([a-z][a-z0-9+.-]*://)?(\*\.)?(\[[0-9a-f:]+\]|[\w.-]+)(:\d{1,5})?", re.IGNORECASE)


class ConfigError(ValueError):
    """A setting that can't be; the message names it and its value."""


@dataclass(frozen=True)
class User:
    """Whose requests carry a key with this hash: `printf %s "$KEY" | sha256sum`."""

    name: str
    key_sha256: str
    mode: Mode | None = None


@dataclass(frozen=True)
class Service:
    """An application whose key, of this hash, reaches every user over REST."""

    name: str
    key_sha256: str


@dataclass(frozen=True)
class Config:
    """All settings. `user`: whose requests they are where no keys are listed and no header says so. `allowed_hosts`:
    names under which the gateway may be reached, and origins of web pages that may call it. `journal`: the folder for
    exchanges that are not stored yet, "off" for none."""

    dsn: str = ""
    host: str = "127.0.0.1"
    port: int = 8787
    upstream_anthropic: str = "https://api.anthropic.com"
    upstream_openai: str = "https://api.openai.com"
    mode: Mode = "manage"
    user: str = "local"
    user_header: str = ""
    session_header: str = ""
    project: str = ""
    inspect_token: str = ""
    tools: tuple[str, ...] = ("memory_query", "memory_update")
    fault_rounds: int = 4
    recall_tokens: int = 1500
    window: int = 200_000
    database_ms: int = 300
    capture: bool = True
    journal: str = ""
    allowed_hosts: tuple[str, ...] = ()
    connect_seconds: float = 30.0
    hang_seconds: float = 900.0
    users: tuple[User, ...] = field(default=())
    services: tuple[Service, ...] = field(default=())
    clients: Mapping[str, UserRole] = field(default_factory=dict)

    @property
    def has_keys(self) -> bool:
        """Is anybody listed with a key? Then a request without one has no user."""
        return bool(self.users or self.services)

    @property
    def is_local(self) -> bool:
        """Does it listen on this machine only?"""
        return is_loopback(self.host)

    def as_dict(self) -> dict[str, Any]:
        """Every setting as it may be printed: no passwords."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["dsn"] = re.sub(r"(password=)\S+|(://[^:/@\s]*:)[^@\s]+(?=@)", r"\1\2***", self.dsn)
        values["inspect_token"] = "***" if self.inspect_token else ""
        values["users"] = [{"name": u.name, "mode": u.mode or self.mode} for u in self.users]
        values["services"] = [service.name for service in self.services]
        return values


def load(
    environment: Mapping[str, str],
    file: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
    *,
    private_dsn: str = "",
) -> Config:
    """Returns the settings of a process. `private_dsn`: the database where none is set. Raises ConfigError."""
    file = file or environment.get("PG_MEMOIR_GATEWAY_CONFIG") or None
    try:
        values = tomllib.loads(Path(file).read_text("utf-8")) if file else {}
    except (OSError, ValueError) as error:  # also of a text that is no TOML
        raise ConfigError(f"configuration {file}: {error}") from error
    values |= {name: environment[variable] for variable, name in ENVIRONMENT.items() if environment.get(variable)}
    values |= {name: value for name, value in (given or {}).items() if value is not None}
    values["dsn"] = values.get("dsn") or private_dsn
    known = {f.name: f for f in fields(Config)}
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(f"unknown setting {unknown[0]}; there are {', '.join(known)}")
    users = tuple(_read_user(entry) for entry in values.pop("users", []))
    services = tuple(Service(**_read_keyed("services", entry, {"name"})) for entry in values.pop("services", []))
    clients = _read_clients(values.pop("clients", {}))
    plain = {name: _convert(name, value, getattr(Config, name)) for name, value in values.items()}
    return check_config(replace(Config(), users=users, services=services, clients=clients, **plain))


def check_config(config: Config) -> Config:
    """The settings, if they go together."""
    if config.mode not in MODES:
        raise ConfigError(f"mode is {config.mode!r}, not one of {', '.join(MODES)}")
    for name, (least, most) in BOUNDS.items():
        if not least <= getattr(config, name) <= most:
            raise ConfigError(f"{name} is {getattr(config, name)}, not from {least} to {most}")
    for name in ("upstream_anthropic", "upstream_openai"):
        address = urlsplit(getattr(config, name))
        if address.scheme not in ("http", "https") or not address.hostname or address.query:
            raise ConfigError(f"{name} is {getattr(config, name)!r}, not an http or https address")
    for host in config.allowed_hosts:
        if not HOST.fullmatch(host):
            examples = "memory.example.com, *.example.com, memory.example.com:8443"
            told = f"not a host ({examples}) or an origin (https://chat.example.com)"
            raise ConfigError(f"allowed_hosts has {host!r}, {told}")
    if not config.dsn:
        raise ConfigError("dsn is empty. Set PG_MEMOIR_DSN, or dsn in the file, or run pg-memoir up")
    if not config.is_local and not config.has_keys and not config.user_header:
        raise ConfigError(f"host is {config.host}, which others can reach: list users, or name a user_header")
    user_keys = {user.key_sha256: user.name for user in config.users}
    for service in config.services:
        if owner := user_keys.get(service.key_sha256):
            raise ConfigError(f"services: {service.name} has the key of the user {owner}. Give it one of its own")
    return config


def _read_user(entry: Any) -> User:
    found = _read_keyed("users", entry, {"name", "mode"})
    if found.get("mode") not in (None, *MODES):
        raise ConfigError(f"users: mode of {found['name']} is {found['mode']!r}, not one of {', '.join(MODES)}")
    return User(**found)


def _read_keyed(setting: str, entry: Any, names: set[str]) -> dict[str, Any]:
    """Returns an entry of a list of keys, if it is a table of these names and the hash of a key."""
    if not isinstance(entry, dict) or not entry.get("name") or set(entry) - names - {"key_sha256"}:
        told = ", ".join(sorted(names, reverse=True))
        raise ConfigError(f"{setting} has {entry!r}, not a table of {told} and key_sha256")
    if not re.fullmatch(r"[0-9a-f]{64}", str(entry.get("key_sha256"))):
        raise ConfigError(f"{setting}: key_sha256 of {entry['name']} is not 64 hexadecimal digits")
    return entry


def _read_clients(table: Any) -> dict[str, UserRole]:
    if not isinstance(table, dict):
        told = "a table of parts of a User-Agent or X-Title and whose words they send"
        raise ConfigError(f"clients is {table!r}, not {told}")
    for sign, role in table.items():
        if not sign.strip():
            raise ConfigError(f"clients: {sign!r} is empty, which every client has in its name")
        if role not in USER_ROLES:
            raise ConfigError(f"clients: {sign!r} is {role!r}, not one of {', '.join(USER_ROLES)}")
    return table


def _convert(name: str, value: Any, default: Any) -> Any:
    """The value in the type of the setting: what the environment says is text."""
    wanted = type(default)
    if wanted is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if wanted is tuple and isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    if wanted is bool and isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    try:
        if wanted in (int, float) and not isinstance(value, bool):
            return wanted(value)
    except (TypeError, ValueError):
        pass
    if not isinstance(value, wanted):
        kind = "list of texts" if wanted is tuple else wanted.__name__
        raise ConfigError(f"{name} is {value!r}, not of type {kind}")
    return value.rstrip("/") if name.startswith("upstream_") else value


def is_loopback(host: str) -> bool:
    """Does this host name mean the machine itself?"""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
