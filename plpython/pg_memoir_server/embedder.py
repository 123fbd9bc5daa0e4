"""The shared embedder: one process per server that holds the embedding models and answers over a Unix socket.

    python -m pg_memoir_server.embedder --socket DIR/embed.sock --model all-MiniLM-L6-v2 [--detach]

DIR is private (made with mode 0700, refused where others can write). Queries have a lane of their own, ahead of
backlog; what arrives together is embedded together; backlog goes in small pieces. A query that is repeated within a
minute is not embedded again. A client that hangs, dies or sends nonsense loses its connection, nothing else happens.
SIGTERM finishes what was begun. It ends by itself when its socket file is removed or replaced, or when the file given
by --while-exists is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from . import protocol
from .detach import detach, take_lock
from .private import NotPrivate, private_dir
from .protocol import Refused

log = logging.getLogger("pg_memoir.embedder")

MAX_CONNECTIONS = 1000
MAX_INFLIGHT = 128 << 20  # bytes of request bodies held at once
FRAME_SECONDS = 30.0  # for the rest of a frame once it began, and for taking a reply
DRAIN_SECONDS = 10.0
RECENT_SECONDS, MOST_RECENT = 60.0, 1000  # queries whose vectors are kept, and for how long


class Server:
    """Connections, their checks and limits; the work itself is done by lanes.Model."""

    def __init__(self, path: str, models: dict[Any, Any], allowed_uids: set[int]):
        self.path, self.models, self.allowed = path, models, allowed_uids
        self.started, self.stopping = time.time(), asyncio.Event()
        self.draining = False
        self.inflight = self.requests = 0
        self.connections: dict[asyncio.StreamWriter, float] = {}  # → since when idle; inf while a request runs
        self._identity: tuple[int, int] | None = None
        self._recent: dict[tuple[str, bytes], tuple[float, Any]] = {}  # (model, hash of a query) → (when, vectors)

    # connections ------------------------------------------------------------------------------------------------------

    async def listen(self) -> asyncio.AbstractServer:
        """Binds beside the socket's place and moves it there, so that a client meets the old or the new, never none."""
        temporary = f"{self.path}.{os.getpid()}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(temporary)
        os.chmod(temporary, 0o600 if self.allowed <= {os.geteuid(), 0} else 0o666)  # peers are checked either way
        server = await asyncio.start_unix_server(self._serve, sock=listener, backlog=512)
        os.rename(temporary, self.path)
        info = os.lstat(self.path)
        self._identity = info.st_dev, info.st_ino
        return server

    def still_ours(self) -> bool:
        try:
            info = os.lstat(self.path)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._identity

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        _, uid, _ = protocol.PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, protocol.PEER.size))
        if uid not in self.allowed:
            log.warning("refused a connection of uid %d", uid)
            writer.transport.abort()
            return
        if len(self.connections) >= MAX_CONNECTIONS:
            self._drop_longest_idle()
        self.connections[writer] = time.monotonic()
        try:
            while await self._request(reader, writer):
                self.connections[writer] = time.monotonic()
        except (OSError, EOFError, protocol.ProtocolError, TimeoutError) as error:
            if not isinstance(error, EOFError):
                log.info("closing a connection: %s", error or type(error).__name__)
        finally:
            self.connections.pop(writer, None)
            writer.transport.abort()

    def _drop_longest_idle(self) -> None:
        writer = min(self.connections, key=self.connections.__getitem__)
        if self.connections.pop(writer) != float("inf"):
            writer.transport.abort()  # its client reconnects when it next has a question

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; whether the connection stays open."""
        head, size = protocol.unpack_prelude(await reader.readexactly(protocol.PRELUDE.size))
        self.connections[writer] = float("inf")
        if self.inflight + size > MAX_INFLIGHT:
            await self._reply(writer, {"error": "busy", "message": "the embedder holds too many requests"})
            return False
        self.inflight += size
        self.requests += 1
        try:
            async with asyncio.timeout(FRAME_SECONDS):
                header = protocol.unpack_header(await reader.readexactly(head))
                body = await reader.readexactly(size)
            try:
                answer, data = await self._answer(header, body, reader)
            except Refused as refusal:
                answer, data = {"error": refusal.kind, "message": str(refusal)}, b""
            except Exception:
                log.exception("a request failed")
                answer, data = {"error": "internal", "message": "the embedder failed, its log says why"}, b""
            await self._reply(writer, answer, data)
        finally:
            self.inflight -= size
            self.requests -= 1
        return not self.draining

    async def _reply(self, writer: asyncio.StreamWriter, header: dict[str, Any], body: bytes = b"") -> None:
        writer.write(protocol.pack(header, body))
        async with asyncio.timeout(FRAME_SECONDS):
            await writer.drain()

    # requests ---------------------------------------------------------------------------------------------------------

    async def _answer(
        self, header: dict[str, Any], body: bytes, reader: asyncio.StreamReader
    ) -> tuple[dict[str, Any], bytes]:
        operation = header.get("op")
        if operation == "ping":
            return self._about(), b""
        if operation == "stats":
            return self._about() | self._figures(), b""
        if operation == "read":
            return {"ok": True}, await self._read(header.get("function"), body)
        if operation == "ask":
            return await self._ask(header, body, reader)
        if operation == "count":
            return {"ok": True}, await self._count(header.get("tokenizer"), body)
        if operation != "embed":
            raise Refused("request", f"unknown operation {operation!r}")
        texts = _texts(body)
        query = header.get("kind") == "query" and len(texts) <= protocol.MAX_QUERY_TEXTS
        vectors = await self._embed(header, texts, query, reader)
        return {"ok": True, "rows": vectors.shape[0], "dimension": vectors.shape[1]}, vectors.astype("<f4").tobytes()

    async def _embed(self, header: dict[str, Any], texts: list[str], query: bool, reader: asyncio.StreamReader) -> Any:
        if self.draining:
            raise Refused("draining", "the embedder is stopping")
        model = self.models.get(header.get("model"))
        if model is None:
            raise Refused("model", f"this embedder serves {', '.join(self.models)}, not {header.get('model')!r}")
        timeout = header.get("timeout_ms")
        if not isinstance(timeout, (int, float)) or not 0 < timeout <= 3_600_000:
            raise Refused("request", "timeout_ms is not between 1 and 3600000")
        key = str(header.get("model")), hashlib.blake2b(json.dumps(texts).encode()).digest()
        vectors = self._find_repeated(key) if query else None
        if vectors is None:
            vectors = await model.embed(texts, query, time.monotonic() + timeout / 1000, reader.at_eof)
            if query:
                self._keep(key, vectors)
        return vectors

    async def _ask(
        self, header: dict[str, Any], body: bytes, reader: asyncio.StreamReader
    ) -> tuple[dict[str, Any], bytes]:
        """A question: what it says, in other languages than English with the English for its words, and its vector if a
        model is named; small talk needs none."""
        from .multilingual import LANGUAGES
        from .translation import to_english

        facts = await self._read("read_question", body)
        read = json.loads(facts)
        if read["language"] in LANGUAGES:
            try:
                read["english"] = await asyncio.to_thread(to_english, read["redacted"], read["language"])
            except Exception:
                log.exception("a question is not translated")
            facts = json.dumps(read, ensure_ascii=False).encode()
        sent, reply, vector = f"{header.get('prefix') or ''}{read['redacted']}", {"rows": 0, "dimension": 0}, b""
        problem = None
        if header.get("model") is not None and read["redacted"].strip() and not read["small_talk"]:
            try:
                vectors = await self._embed(header, [sent], True, reader)
                reply, vector = {"rows": 1, "dimension": vectors.shape[1]}, vectors.astype("<f4").tobytes()
            except Refused as refusal:
                problem = str(refusal)
        return {"ok": True, **reply, "problem": problem}, vector + facts

    def _find_repeated(self, key: tuple[str, bytes]) -> Any:
        """Return the vectors of a query that was asked within the last minute, None of another."""
        asked, vectors = self._recent.get(key, (0.0, None))
        return vectors if time.monotonic() - asked < RECENT_SECONDS else None

    def _keep(self, key: tuple[str, bytes], vectors: Any) -> None:
        if len(self._recent) >= MOST_RECENT:
            since = time.monotonic() - RECENT_SECONDS
            self._recent = {k: kept for k, kept in self._recent.items() if kept[0] > since}
            if len(self._recent) >= MOST_RECENT:
                self._recent.clear()
        self._recent[key] = time.monotonic(), vectors

    async def _read(self, name: Any, body: bytes) -> bytes:
        from .reading import FUNCTIONS
        from .shim import SLOW

        if name not in FUNCTIONS:
            raise Refused("request", f"unknown function {name!r}")
        texts = _texts(body)
        if len(texts) != 1:
            raise Refused("request", f"{len(texts)} texts to read: one a request")
        text = texts[0]
        # A long text or a batch must not keep the queries of others waiting.
        at_once = len(text) < 4000 and name not in SLOW
        answer = FUNCTIONS[name](text) if at_once else await asyncio.to_thread(FUNCTIONS[name], text)
        return json.dumps(answer, ensure_ascii=False).encode()

    async def _count(self, tokenizer: Any, body: bytes) -> bytes:
        from . import tokens

        texts = _texts(body)
        if tokenizer not in tokens.ENCODINGS:
            raise Refused("request", f"unknown tokenizer {tokenizer!r}")
        # As above; the tables are loaded by the first.
        at_once = tokens.is_loaded(tokenizer) and len(body) < 50_000
        counts = tokens.count(texts, tokenizer) if at_once else await asyncio.to_thread(tokens.count, texts, tokenizer)
        return json.dumps(counts).encode()

    def _about(self) -> dict[str, Any]:
        from .info import version

        return {
            "ok": True,
            "pid": os.getpid(),
            "version": version(),
            "models": [m.about() for m in self.models.values()],
        }

    def _figures(self) -> dict[str, Any]:
        with open("/proc/self/statm") as file:
            rss = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            "uptime_s": round(time.time() - self.started, 1),
            "rss_bytes": rss,
            "connections": len(self.connections),
            "inflight_bytes": self.inflight,
            "figures": {name: model.figures() for name, model in self.models.items()},
        }

    # life -------------------------------------------------------------------------------------------------------------

    async def watch(self, while_exists: str | None) -> None:
        """Ends the process once a second finds its socket gone or replaced, or for 30 s no `while_exists`."""
        missing = 0
        while not self.stopping.is_set():
            await asyncio.sleep(1)
            if not self.still_ours():
                log.info("the socket file is gone or another's")
                self.stopping.set()
            missing = 0 if while_exists is None or os.path.exists(while_exists) else missing + 1
            if missing >= 30:
                log.info("%s is gone", while_exists)
                self.stopping.set()

    async def drain(self, listener: asyncio.AbstractServer) -> None:
        """Stops accepting and waits for the requests under way."""
        self.draining = True
        listener.close()
        end = time.monotonic() + DRAIN_SECONDS
        while self.requests and time.monotonic() < end:
            await asyncio.sleep(0.02)
        if self.still_ours():
            os.unlink(self.path)


def _texts(body: bytes) -> list[str]:
    try:
        texts = json.loads(body)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused("request", "the body is not a JSON array of texts")
    if not 0 < len(texts) <= protocol.MAX_TEXTS:
        raise Refused("request", f"{len(texts)} texts in a request: 1 to {protocol.MAX_TEXTS}")
    return [text.encode("utf-8", "replace").decode() for text in texts]  # a lone surrogate can't be tokenized


async def serve(options: argparse.Namespace) -> int:
    """Runs until told to stop; the exit code."""
    from . import translation
    from .lanes import Model

    translation.keep_in(options.cache)
    models = {}
    for given in options.model:
        name, _, source = given.partition("=")
        models[name] = Model(name, source or name, options)
    server = Server(options.socket, models, {os.geteuid(), 0, *options.allow_uid})
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    listener = await server.listen()
    log.info("pid %d answers at %s", os.getpid(), options.socket)
    failed: list[BaseException] = []

    def note_failure(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error:
            failed.append(error)
            server.stopping.set()

    first = next(iter(models.values())).load()  # the others are loaded when first asked for
    first.add_done_callback(note_failure)
    watch = asyncio.create_task(server.watch(options.while_exists))
    await server.stopping.wait()
    watch.cancel()
    await server.drain(listener)
    if failed:
        log.error("can't load %s: %s", options.model[0], failed[0])
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    """Command line; see --help."""
    parser = argparse.ArgumentParser(
        prog="pg-memoir-embedder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--socket", required=True, help="path of the Unix socket; its folder is made private")
    parser.add_argument("--model", action="append", help="NAME or NAME=SOURCE (packaged name, folder); may be repeated")
    parser.add_argument("--runtime", default="auto", choices=["auto", "onnx", "sentence-transformers", "openai"])
    parser.add_argument("--cache", type=Path, help="folder for built graphs (default: cache beside the socket)")
    parser.add_argument("--threads", type=int, default=1, help="threads of one model call")
    parser.add_argument("--allow-uid", type=int, action="append", default=[], help="another uid that may connect")
    parser.add_argument("--while-exists", metavar="FILE", help="end when FILE is gone (the server's postmaster.pid)")
    parser.add_argument("--endpoint", help="base of an OpenAI-compatible API, for --runtime openai")
    parser.add_argument("--api-key-env", help="environment variable with its key (…_API_KEY)")
    parser.add_argument("--api-key-file", help="file with its key, mode 0600")
    parser.add_argument(
        "--detach", action="store_true", help="go to the background, log to embed.log beside the socket"
    )
    parser.add_argument(
        "--stop", action="store_true", help="stop the embedder that answers at --socket and wait for its end"
    )
    options = parser.parse_args(argv)
    options.socket = os.path.abspath(options.socket)
    folder = os.path.dirname(options.socket)
    if options.stop:
        from .supervise import stop

        print(stop(options.socket))
        return 0
    if options.runtime == "openai" and not options.endpoint:
        parser.error("--runtime openai needs --endpoint")
    if len(os.fsencode(options.socket)) > 107 - len(".4194304"):
        parser.error(f"the path {options.socket} is too long for a Unix socket")
    from .models import DEFAULT_MODEL

    options.model = options.model or [DEFAULT_MODEL]
    options.cache = options.cache or Path(folder, "cache")
    os.umask(0o077)
    try:
        private_dir(folder)
    except (NotPrivate, OSError) as error:
        print(f"pg-memoir-embedder: {error}", file=sys.stderr)
        return 2
    if options.detach:
        detach(os.path.join(folder, "embed.log"))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    lock = take_lock(options.socket)
    if lock is None:
        log.info("another embedder holds %s", options.socket)
        return 3
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY and hard < 4096 else max(soft, 4096), hard)
    )
    try:
        code = asyncio.run(serve(options))
    except Exception:
        log.exception("the embedder failed")
        code = 1
    log.info("ends with %d", code)
    logging.shutdown()
    os._exit(code)  # a model call that hangs in a thread must not keep the process


if __name__ == "__main__":
    sys.exit(main())
