"""Behind PgBouncer in transaction mode, with fewer server connections than clients: everything still works."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from pg_memoir import AsyncMemoir, Memoir
from pg_memoir_cli.jobs import _Held, run_jobs
from psycopg.conninfo import conninfo_to_dict, make_conninfo

BINARY = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(BINARY is None, reason="pgbouncer is not installed")
PAIR = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


@pytest.fixture(scope="module")
def bouncer_dsn(memoir_dsn):
    """A PgBouncer of our own on a Unix socket, running as the server's user (it refuses root, and the socket is private)."""
    server = conninfo_to_dict(memoir_dsn)
    who = os.environ.get("PG_MEMOIR_SERVER_USER", "postgres") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pgm-b-") as folder:
        if who:
            os.chown(folder, pwd.getpwnam(who).pw_uid, -1)
        config = Path(folder, "pgbouncer.ini")
        config.write_text(
            f"[databases]\n* = host={server['host']} port={server.get('port', 5432)} user={server.get('user', 'postgres')}\n"
            f"[pgbouncer]\nlisten_port = 6432\nlisten_addr =\nunix_socket_dir = {folder}\nauth_type = any\npool_mode = transaction\n"
            f"default_pool_size = 2\nmax_client_conn = 100\nlogfile = {folder}/log\npidfile = {folder}/pid\n"
        )
        process = subprocess.Popen([str(BINARY), "-q", str(config)], user=who)
        try:
            dsn = make_conninfo(host=folder, port=6432, dbname=server["dbname"], user=server.get("user", "postgres"))
            for _ in range(100):
                try:
                    psycopg.connect(dsn, prepare_threshold=None).close()
                    break
                except psycopg.OperationalError:
                    time.sleep(0.05)
            yield dsn
        finally:
            process.terminate()
            process.wait(10)


def test_threads(bouncer_dsn):
    with Memoir(bouncer_dsn, max_size=8) as memoir, ThreadPoolExecutor(8) as threads:

        def work(number):
            session = memoir.session(f"u{number % 3}", f"s{number}", model="gpt-4o")
            for _ in range(8):
                session.persist_turn(PAIR)
                assert session.compile_context("Hello again")[-1]["role"] == "user"
            return len(session.history())

        assert list(threads.map(work, range(12))) == [16] * 12


def test_tasks(bouncer_dsn):
    async def work(memoir, number):
        session = memoir.session("async", f"s{number}")
        for _ in range(8):
            await session.persist_turn(PAIR)
        return len(await session.history())

    async def run():
        async with AsyncMemoir(bouncer_dsn, max_size=8) as memoir:
            return await asyncio.gather(*(work(memoir, number) for number in range(8)))

    assert asyncio.run(run()) == [16] * 8


def test_worker_runs_jobs(bouncer_dsn):
    run_jobs(bouncer_dsn, once=True)  # those that are due
    pool = _Held(bouncer_dsn)
    with pool.held, Memoir(pool) as memoir:
        memoir.run_job("sweep", wait=0)
        assert {job.last_outcome for job in memoir.list_jobs() if job.job == "sweep"} == {"done"}


def test_worker_keeps_options_of_the_dsn(memoir_dsn):
    dsn = make_conninfo(memoir_dsn, options="-c work_mem=5MB -c statement_timeout=5s")
    with _Held(dsn).held as connection:
        shown = [connection.execute(f"show {name}").fetchone() for name in ("work_mem", "statement_timeout")]
    assert shown == [{"work_mem": "5MB"}, {"statement_timeout": "0"}]
