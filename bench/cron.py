"""The jobs under real pg_cron, every schedule at its shortest, while users write and the embedder is killed: does all of it keep up?"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from .common import ROOT, CannotRun, report, server_dsn

sys.path.insert(0, str(ROOT / "tests"))

LINES = ["I moved to Bergen last week.", "My sister Ana plays the cello.", "Please answer in short sentences.", "We decided to use PostgreSQL for the ledger.",
         "My flight to Lisbon is on 12 March.", "I am allergic to peanuts.", "The build takes 14 minutes since Tuesday.", "I no longer work at Acme."]  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=10, help="how long the jobs run (%(default)s)")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns one section: runs, outcomes and seconds per job, what was written and what became of it."""
    from conftest import BUILD, run_psql
    from servers import PGBIN, as_server_user, environment_of, running, server_folder

    if not Path(
        subprocess.run([PGBIN / "pg_config", "--pkglibdir"], capture_output=True, text=True, check=True).stdout.strip(),
        "pg_cron.so",
    ).exists():
        raise CannotRun("pg_cron is not installed")
    environment = environment_of(server_dsn())
    with server_folder() as folder:
        as_server_user(
            PGBIN / "initdb",
            "-D",
            folder / "data",
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-instructions",
            "--no-sync",
        )
        settings = {"shared_preload_libraries": "pg_cron,pg_stat_statements", "cron.use_background_workers": "on", "cron.database_name": "postgres",
                    "max_worker_processes": "24", "max_locks_per_transaction": "256"}  # fmt: skip
        with running(folder, environment, **settings) as dsn:
            # The embedder's folder must be the server's own, and private.
            as_server_user("mkdir", "-m", "0700", folder / "e")
            run_psql(dsn, "-v", "modulus=2", "-1", "-f", str(BUILD / "pg_memoir.sql"), "-o", "/dev/null")
            run_psql(
                dsn,
                "-c",
                "create extension pg_cron",
                "-c",
                "create extension plpython3u",
                "-c",
                "call memoir.setup()",
                "-c",
                "call memoir.ensure_partitions()",
            )
            run_psql(dsn, "-1", "-f", str(BUILD / "pg_memoir_plpython.sql"), "-o", "/dev/null")
            return [report("cron", _measure(dsn, str(folder / "e" / "socket"), options.minutes * 60))]


def _measure(dsn: str, socket: str, seconds: float) -> str:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=memoir,public") as db:
        jobs = [row[0] for row in db.execute("select job from memoir.list_jobs()")]
        db.execute("select memoir.set_setting('embedder_socket', %s)", [Jsonb(socket)])
        version = db.execute("select extversion from pg_extension where extname = 'pg_cron'").fetchone()[0]
        shortest = "* * * * *" if tuple(map(int, version.partition("-")[0].split("."))) < (1, 5) else "10 seconds"
        for job in jobs:
            db.execute("select memoir.set_schedule(%s, %s)", [job, shortest])
        db.execute("call memoir.enable_jobs()")
        scheduled = db.execute("select count(*) from cron.job where jobname like 'memoir-%'").fetchone()[0]
        kills = _live(dsn, socket, seconds)
        db.execute(
            "select memoir.set_schedule(job, 'off') from memoir.list_jobs() where job not in ('embedder', 'embed', 'flush', 'merge', 'extract')"
        )
        db.execute("call memoir.enable_jobs()")
        deadline = time.monotonic() + 240
        while (
            time.monotonic() < deadline
            and db.execute(
                "select exists (select from _memoir.work_items where state <> 'dead' and kind in ('embed', 'extract'))"
            ).fetchone()[0]
        ):
            time.sleep(2)
        db.execute("call memoir.disable_jobs()")
        rows = db.execute("""select job, count(*), count(*) filter (where outcome = 'done'), count(*) filter (where outcome = 'still running'),
            coalesce(string_agg(distinct outcome || coalesce(': ' || left(error, 60), ''), '; ') filter (where outcome not in ('done', 'still running')), ''),
            count(*) filter (where outcome is null), round(avg(extract(epoch from finished_at - started_at)), 2), round(max(extract(epoch from finished_at - started_at)), 2)
            from _memoir.job_runs group by job order by job""").fetchall()
        failed_starts = db.execute(
            "select count(*), coalesce(string_agg(distinct left(return_message, 80), '; '), '') from cron.job_run_details where status = 'failed'"
        ).fetchone()
        facts: dict[str, Any] = dict(
            zip(
                ("users", "turns", "memories", "items", "vectors", "ledger rows", "queue", "dead letters"),
                db.execute("""
            select (select count(*) from _memoir.users), (select count(*) from _memoir.conversation_history), (select count(*) from _memoir.memory_store),
              (select count(*) from _memoir.search_items where embeddable and not dead), (select count(*) from _memoir.embeddings),
              (select count(*) from _memoir.compile_ledger), (select count(*) from _memoir.work_items where state <> 'dead'), (select count(*) from _memoir.work_items where state = 'dead')""").fetchone(),
            )
        )
        lacking = db.execute("""select count(*) from _memoir.search_items i where i.embeddable and not i.dead
            and not exists (select from _memoir.embeddings e where e.user_id = i.user_id and e.item_no = i.item_no)""").fetchone()[
            0
        ]
        health = db.execute("select status, why from memoir.health").fetchone()
        table = [
            "| job | runs | done | met a predecessor | other outcomes | unfinished | mean s | longest s |",
            "|---|---|---|---|---|---|---|---|",
        ]
        table += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        return "\n".join(
            [
                f"pg_cron {version}, {scheduled} jobs at `{shortest}`, {seconds / 60:.0f} minutes, embedder killed {kills} times.",
                "",
                *table,
                "",
                ", ".join(f"{value} {key}" for key, value in facts.items()) + f"; {lacking} items without a vector.",
                f"Failed starts of pg_cron: {failed_starts[0]} {failed_starts[1]}. Health: {health[0]}, {health[1]}.",
            ]
        ).replace(socket, "its socket")


def _live(dsn: str, socket: str, seconds: float) -> int:
    """Two users write and ask until the time is up; the embedder dies at one third and two thirds. How often it was killed."""
    stop = threading.Event()
    errors: list[str] = []

    def write(user: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as db:
            number = 0
            while not stop.wait(2.0):
                try:
                    say = f"{LINES[number % len(LINES)]} ({number})"
                    db.execute(
                        "select memoir.persist_turn(%s, %s, %s)",
                        [
                            user,
                            f"s{number // 40}",
                            Jsonb([{"role": "user", "content": say}, {"role": "assistant", "content": "Noted."}]),
                        ],
                    )
                    db.execute(
                        "select memoir.compile_context(%s, %s, %s)",
                        [user, f"s{number // 40}", "What do you know about me?"],
                    )
                    number += 1
                except psycopg.Error as error:
                    errors.append(str(error))

    threads = [threading.Thread(target=write, args=[f"user-{n}"]) for n in range(2)]
    for thread in threads:
        thread.start()
    started, kills = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        time.sleep(1)
        if kills < 2 and time.monotonic() - started > seconds * (kills + 1) / 3:
            pid = _embedder(socket)
            if pid:
                os.kill(pid, signal.SIGKILL)
                kills += 1
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise CannotRun(f"{len(errors)} calls of users failed, the first: {errors[0]}")
    return kills


def _embedder(socket: str) -> int | None:
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pg_memoir_server.embedder" in line and socket.encode() in line:
            return int(folder.name)
    return None
