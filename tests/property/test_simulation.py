"""A short run of the simulation (make simulate runs the whole): users, jobs, and every invariant after every day."""

from collections.abc import Iterator

import psycopg
import pytest
from servers import connect, database, install
from simulation import Simulation


@pytest.fixture
def db(server_dsn: str) -> Iterator[psycopg.Connection]:
    """A database for each run, because totals are those of a whole database."""
    with database(server_dsn) as dsn:
        install(dsn)
        with connect(dsn) as db:
            yield db


@pytest.mark.acceptance
def test_weeks_of_life_keep_every_invariant(db: psycopg.Connection) -> None:
    simulation = Simulation(db, users=12, seed=3, archive_after=5)
    db.execute("select memoir.set_setting('session_ttl_hours', '240')")  # so that a month is over soon
    for _ in range(36):
        simulation.step()
    report = simulation.report()
    counts = simulation.counts
    # Enough happened for the checks to mean something.
    least = {"turns": 400, "turns compacted": 50, "forgotten": 0, "closed": 2, "archived": 20, "memories archived": 0}
    least |= {"expiry: sessions": 0, "profiles: changed": 5, "summaries: summaries": 2}
    assert all(counts[name] > number for name, number in least.items()), report
    assert counts["expiry: memories"] + counts["demotion: expired"] > 5, report
    assert counts["promotion: to_tier_2"] + counts["promotion: to_tier_3"] + counts["promotion: waiting"] > 0, report
    updated = "sum(n_tup_hot_upd), sum(n_tup_upd) from pg_stat_user_tables where relname like 'memory_stats_p%'"
    hot, updates = db.execute(f"select {updated}").fetchone()
    assert updates > 0 and hot >= 0.95 * float(updates), report


@pytest.mark.extended
@pytest.mark.acceptance
def test_weeks_of_many_users(db: psycopg.Connection) -> None:
    """As `make simulate` does it, but shorter."""
    simulation = Simulation(db, users=60, seed=4)
    for _ in range(75):
        simulation.step()
    assert simulation.counts["turns"] > 4000 and simulation.counts["archived"] > 0, simulation.report()
