"""Months of life on the settable clock: users talk, state, correct and forget, the jobs run every day, and after every day every
invariant is checked and the totals are reconciled.

    make simulate                             200 users, 180 days
    python tests/support/simulation.py 20 60 7        20 users, 60 days, seed 7
"""

import random
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from calls import call, set_settings
from internals import last_run
from loops import step

START = datetime(2026, 1, 20, tzinfo=UTC)
NOUNS = """violin canoe telescope bakery vineyard greenhouse sailboat workshop orchard windmill lighthouse observatory
    foundry ferry quarry apiary library tram kiln loom""".split()
VERBS = "repaired painted sold visited measured borrowed cleaned photographed planned lost".split()
PLACES = "Basel Ulm Graz Trier Kiel Lyon Porto Gent Bergen Turku".split()
GREY, LATER = "The weather is grey today and I stay in.", "Let me think about that for a while."
SMALL = ("Hello again.", "Thanks a lot.", GREY, LATER)
JOBS = "flush merge promotion demotion expiry compaction summaries profiles consolidation archive".split()

# What must hold after every day: queries that return offenders.
INVARIANTS = {
    # [PG] 13, as the specification reads it
    "tiers 3 and 4 are validated": "select memory_id from _memoir.memory_store where state = 'active' and tier >= 3 and validated_at is null",
    "tier 2 is validated or the person's own word": """select memory_id from _memoir.memory_store where state = 'active' and tier = 2 and validated_at is null
        and provenance not in ('user_stated', 'correction', 'preference', 'instruction')""",
    "tiers 2 and up are global": "select memory_id from _memoir.memory_store where state = 'active' and tier >= 2 and scope <> 'global'",
    "tiers 3 and 4 have no end": "select memory_id from _memoir.memory_store where state = 'active' and tier >= 3 and expires_at is not null",
    "one active memory per text": """select user_id, content_hash from _memoir.memory_store where state = 'active'
        group by user_id, content_hash, project, local_to having count(*) > 1""",
    "one value per slot, or a contradiction": """select a.memory_id from _memoir.memory_store a join _memoir.memory_store b using (user_id, slot, project)
        where a.state = 'active' and b.state = 'active' and a.memory_id < b.memory_id and a.slot_value <> b.slot_value and a.local_to is not distinct from b.local_to
        and not exists (select from _memoir.memory_relationships r where r.user_id = a.user_id and r.relation = 'contradicts'
          and (r.source_id, r.target_id) in ((a.memory_id, b.memory_id), (b.memory_id, a.memory_id)))""",
    "what is forgotten stays away": """select m.memory_id from _memoir.memory_store m where m.state = 'active'
        and exists (select from _memoir.tombstones t where t.user_id = m.user_id) and (_memoir.tombstone_of(m.user_id, m.content, m.slot, m.slot_value, m.project)).user_id is not null""",
    "working notes belong to running sessions": """select w.key from _memoir.memory_store_working w join _memoir.sessions s on s.user_id = w.user_id and s.session_id = w.session_id
        where s.status in ('closed', 'expired')""",
    "local memories end after their session": """select m.memory_id from _memoir.memory_store m join _memoir.sessions s on s.user_id = m.user_id and s.session_id = m.local_to
        where m.state = 'active' and s.status in ('closed', 'expired') and (m.expires_at is null or m.expires_at > s.closed_at + interval '24 hours')""",
    "nothing outlives its end": "select memory_id from _memoir.memory_store where state = 'active' and expires_at <= memoir.now()",
    "no session outlives its end": """select session_id from _memoir.sessions s join _memoir.session_counters c using (user_id, session_id)
        where s.status = 'active' and greatest(s.created_at, c.last_recorded_at) + make_interval(hours => (select (config ->> 'session_ttl_hours')::integer from _memoir.settings_merged)) <= memoir.now()""",
    "the last state is the state": """select m.memory_id from _memoir.memory_store m cross join lateral (select s.state from _memoir.memory_states s where s.user_id = m.user_id
        and s.memory_id = m.memory_id order by s.recorded_at desc, (s.state = 'active') limit 1) l where l.state <> m.state""",
    "only what is active is found": """select i.ref_id from _memoir.search_items i join _memoir.memory_store m on m.user_id = i.user_id and m.memory_id = i.ref_id
        where i.kind = 'm' and (i.dead = (m.state = 'active') or i.session_id is distinct from m.local_to)""",
    # Sessions, turns, compactions
    "counters are the turns": """select c.session_id from _memoir.session_counters c left join (select user_id, session_id, count(*) as n, sum(coalesce(prompt_tokens, 0)) as p,
        sum(coalesce(completion_tokens, 0)) as a from _memoir.conversation_history group by 1, 2) h using (user_id, session_id)
        left join (select user_id, session_id, sum(turns) as n from _memoir.archived_turns group by 1, 2) x using (user_id, session_id)
        where c.turn_count <> coalesce(h.n, 0) + coalesce(x.n, 0) or (x.n is null and (c.prompt_tokens <> coalesce(h.p, 0) or c.completion_tokens <> coalesce(h.a, 0)))""",
    "the running exchange is not compacted": """select c.compaction_id from _memoir.compactions c join _memoir.session_counters n using (user_id, session_id)
        join _memoir.sessions s using (user_id, session_id) where c.undone_at is null and c.level > 0 and c.to_turn >= n.exchange_start and s.status = 'active'""",
    # Where nothing was compacted, summary_of (no small call) would say so: no session of these has branched from another.
    "what is shown is what counts": """select s.session_id from (select s.* from _memoir.sessions s where s.summary_text is not null or s.summary_through is not null
          or exists (select from _memoir.compactions c where c.user_id = s.user_id and c.session_id = s.session_id and c.level > 0)) s
        cross join lateral _memoir.summary_of(s, null) n where s.summary_text is distinct from n.summary or s.summary_through is distinct from n.through""",
    "summaries that count are found, others not": """select i.ref_id from _memoir.search_items i join _memoir.compactions c on c.user_id = i.user_id and c.compaction_id = i.ref_id
        join _memoir.sessions s on s.user_id = c.user_id and s.session_id = c.session_id
        where i.kind = 's' and i.dead = (c.undone_at is null and (c.level = 0 or exists (select from _memoir.live_compactions(s) l where l.compaction_id = c.compaction_id)))""",
    "summaries hold nothing excluded": """select c.compaction_id from _memoir.compactions c join _memoir.recall_exclusions e on e.user_id = c.user_id and e.session_id = c.session_id
        and e.lifted_at is null and e.turn_index between c.from_turn and c.to_turn and e.recorded_at > c.recorded_at where c.undone_at is null""",
    # Profiles
    "a profile holds what stands": """select p.user_id from _memoir.users u join _memoir.profiles p on p.user_id = u.user_id and p.version = u.profile_version, unnest(p.memory_ids) i
        join _memoir.memory_store m on m.memory_id = i where m.user_id = p.user_id and (m.state <> 'active' or m.tier < 3 or m.validated_at is null or m.sensitivity <> 'normal')""",
    "profiles keep to their budget": """select p.user_id from _memoir.users u join _memoir.profiles p on p.user_id = u.user_id and p.version = u.profile_version, jsonb_each_text(p.tokens) t
        where t.value::integer > 400""",
    # Counters and jobs
    "users count their memories": """select c.user_id from _memoir.user_counters c where c.memories <> (select count(*) from _memoir.memory_store m where m.user_id = c.user_id)""",
    "missing vectors are queued": """select c.user_id from _memoir.user_counters c join _memoir.embedding_models e on e.status <> 'retired'
        where c.items > 0 and not exists (select from _memoir.work_items j where j.kind = 'embed' and j.user_id = c.user_id)
        and c.next_item - 1 > coalesce((select through_item from _memoir.embedding_cursors x where x.user_id = c.user_id and x.model_id = e.model_id), 0)""",
    "no dead letters": "select work_id from _memoir.work_items where state = 'dead'",
}
HISTORY = "select count(*), coalesce(sum(hashtextextended(h::text, 0)::numeric), 0) from _memoir.conversation_history h where recorded_at < %s"


class Simulation:
    """One run. `step()` lives a day; `report()` says how it went. Raises AssertionError when something does not hold."""

    def __init__(self, db: psycopg.Connection, users: int = 200, seed: int = 1, archive_after: int | None = 60) -> None:
        self.db, self.random, self.day, self.counts = db, random.Random(seed), 0, Counter[str]()
        self.users = [f"user-{n:03}" for n in range(users)]
        self.active: dict[str, tuple[str, int]] = {}  # user: newest session, its turns
        self.memories: dict[str, list[str]] = {user: [] for user in self.users}
        self.forgotten: dict[str, list[str]] = {user: [] for user in self.users}
        self.totals: dict[tuple, tuple] = {}
        self.digest: tuple = (0, 0)
        self.outcomes = Counter[str]()
        db.execute("set synchronous_commit = off")
        db.execute("set search_path = memoir, _memoir, memoir_extensions, pg_catalog")
        known = {job for (job,) in db.execute("select job from _memoir.job_list()")}
        self.jobs = [job for job in JOBS if job in known]
        prices = {"prompt_microcents_per_1k": 15000, "completion_microcents_per_1k": 60000}
        call(db, "register_model", "small", "openai", 2000, 500, **prices)
        set_settings(db, compaction_tokens=1500)
        if archive_after and "archive" in self.jobs:
            set_settings(db, history_days=archive_after, expired_memory_days=archive_after, archive_destination="drop")

    def one(self, query: str, *values: Any) -> Any:
        return self.db.execute(query, values).fetchone()[0]

    def clock(self, hours: float) -> None:
        self.db.execute("select memoir.set_clock(%s)", [START + timedelta(days=self.day, hours=hours)])

    def sentence(self, user: str) -> str:
        self.counts["sentences"] += 1
        r = self.random
        return f"I {r.choice(VERBS)} the {r.choice(NOUNS)} number {self.counts['sentences']} in {r.choice(PLACES)}."

    # A user's day ----------------------------------------------------------------------------------------------------

    def live(self, user: str) -> None:
        r = self.random
        session, turns = self.active.get(user, ("", 0))
        over = session and self.one("select memoir.session_info(%s, %s) ->> 'status'", user, session) == "expired"
        if not session or over or r.random() < 0.15:
            session, turns = f"s{self.day}", 0
            call(self.db, "open_session", user, session, "small", "You are a helpful assistant.")
            self.counts["sessions"] += 1
        for _ in range(r.randint(1, 4)):
            said = [r.choice(SMALL), self.sentence(user), r.choice(SMALL)]
            messages: list[dict] = [{"role": "user", "content": " ".join(said)}]
            if r.random() < 0.15:
                messages += step(1, "look", {}, f"{r.randint(1, 99)} pieces on the shelf")
            messages.append({"role": "assistant", "content": f"{r.choice(SMALL)} You said: {said[1]}"})
            usage = {"prompt_tokens": r.randint(50, 900), "completion_tokens": r.randint(5, 200)}
            done = call(self.db, "persist_turn", user, session, messages, usage)
            turns = done["turn_count"]
            self.counts["turns"] += len(messages)
            if r.random() < 0.25:
                self.note(user, session, done["from_turn"], said[1])
        self.active[user] = (session, turns)
        if r.random() < 0.3:
            value = r.choice(PLACES)
            self.remember(user, f"Lives in {value} since day {self.day}", slot="home", slot_value=value)
        if r.random() < 0.1:
            self.remember(user, f"Prefers the {r.choice(NOUNS)} in {r.choice(PLACES)}", type="preference")
        if r.random() < 0.05:
            call(self.db, "set_working_memory", user, session, "plan", f"Look for the {r.choice(NOUNS)}")
        if self.memories[user] and r.random() < 0.04:
            self.forget(user)
        # Asks for what is known, some of it again and again.
        for _ in range(r.randint(1, 2)):
            query = f"What about the {NOUNS[hash_of(user) % 5 + r.randint(0, 1)]} in {PLACES[hash_of(user) % 3]}?"
            got = self.one("select memoir.context(%s, %s, %s)", user, session, query)
            self.counts["compiles"] += 1
            assert got["tokens"] <= got["budget"], (user, session, got["tokens"], got["budget"])
            assert got["messages"][-1]["role"] == "user" and got["messages"][-1]["content"].endswith(query)
            known = str(got["messages"][0]["content"]) + str(got["messages"][-1]["content"])  # profile, summary, recall
            for gone in self.forgotten[user]:
                assert gone not in known, (user, gone, known)
        if r.random() < 0.12:
            self.db.execute("select memoir.close_session(%s, %s)", [user, session])
            self.active.pop(user, None)
            self.counts["closed"] += 1

    def note(self, user: str, session: str, turn: int, said: str) -> None:
        """What an extraction would store of a turn: the person's word, or a conclusion of the agent."""
        if self.random.random() < 0.6:
            of: dict[str, Any] = {"provenance": "user_stated", "source_turns": [turn]}
            self.remember(user, said.replace("I ", "Has ", 1), session=session, actor="agent", **of)
        else:
            self.remember(user, f"Seems to know about this: {said}", session=session, actor="agent")

    def remember(self, user: str, content: str, **more: Any) -> None:
        done = call(self.db, "remember", user, content, **more)
        self.outcomes[done["outcome"]] += 1
        if done["outcome"] == "stored":
            self.memories[user].append(done["memory_id"])

    def forget(self, user: str) -> None:
        memory = self.memories[user].pop(self.random.randrange(len(self.memories[user])))
        active = "select content from _memoir.memory_store where memory_id = %s and state = 'active'"
        if not (found := self.db.execute(active, [memory]).fetchone()):  # superseded, expired, or archived since
            return
        [content] = found
        self.db.execute("select memoir.forget(%s, %s)", [user, memory])
        self.counts["forgotten"] += 1
        self.forgotten[user].append(content)
        if self.random.random() < 0.3:  # somebody says it again
            assert self.one("select memoir.remember(%s, %s)", user, content)["outcome"] == "refused_tombstone"

    # A day of everybody ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        awake = [user for user in self.users if self.random.random() < 0.12 + 0.3 * (hash_of(user) % 4 == 0)]
        for n, user in enumerate(awake):
            self.clock(8 + 12 * n / len(awake))
            with self.db.transaction():
                self.live(user)
        self.clock(23)
        for job in self.jobs:
            outcome = "time over"
            while outcome == "time over":  # on a busy machine what is left goes to the next run
                self.db.execute("call memoir.run_job(%s)", [job])
                outcome, counts, error = last_run(self.db, job)
                self.counts.update({f"{job}: {key}": value for key, value in counts.items()})
            assert outcome == "done", (job, outcome, error)
        self.check()
        self.day += 1

    def check(self) -> None:
        for name, query in INVARIANTS.items():
            offenders = self.db.execute(query).fetchmany(5)
            assert not offenders, f"day {self.day}: {name}: {offenders}"
        # Append-only: what was there yesterday is there today, byte for byte, or archived.
        today = START + timedelta(days=self.day)
        gone = self.one("select coalesce(sum(turns), 0)::bigint from _memoir.archived_turns")
        if gone == self.counts["archived"]:
            assert self.db.execute(HISTORY, [today]).fetchone() == self.digest, f"day {self.day}: history changed"
        self.counts["archived"] = gone
        self.digest = self.db.execute(HISTORY, [today + timedelta(days=1)]).fetchone()
        # Every turn is somewhere, and in one place only.
        active, compacted = self.db.execute("""
            select count(*) filter (where not covered), count(*) filter (where covered) from (
              select exists (select from _memoir.compactions c where c.user_id = h.user_id and c.session_id = h.session_id and c.undone_at is null and c.level > 0
                and h.turn_index between c.from_turn and c.to_turn) as covered from _memoir.conversation_history h) x""").fetchone()
        assert self.counts["turns"] == active + compacted + gone, (self.counts["turns"], active, compacted, gone)
        self.counts["turns active"], self.counts["turns compacted"] = active, compacted
        states = dict(self.db.execute("select state::text, count(*) from _memoir.memory_store group by 1").fetchall())
        archived = self.one("select count(*) from _memoir.archived_memories")
        made = self.outcomes["stored"] + self.counts["consolidation: made"]
        assert sum(states.values()) + archived == made, (states, archived, self.outcomes)
        self.counts["memories archived"] = archived
        # Costs and token totals only grow.
        counters = "turn_count, tokens, prompt_tokens, completion_tokens, cost_microcents"
        for key, *totals in self.db.execute(f"select session_id, {counters} from _memoir.session_counters"):
            is_grown = all(new >= old for new, old in zip(totals, self.totals.get(key, (0,) * 5)))
            assert is_grown, f"day {self.day}: session {key} lost counts"
            self.totals[key] = tuple(totals)

    def report(self) -> str:
        """What happened, for people who read a failure or a long run."""
        lines = [f"{len(self.users)} users, {self.day} days, {len(INVARIANTS)} invariants checked after every day"]
        lines += [f"  {name}: {count}" for name, count in sorted(self.counts.items())]
        lines += ["remember", *(f"  {name}: {count}" for name, count in sorted(self.outcomes.items()))]
        return "\n".join(lines)


def hash_of(user: str) -> int:
    return int(user[-3:])


def main(users: int = 200, days: int = 180, seed: int = 1) -> None:
    import os

    from servers import connect, database, install

    with database(os.environ["PG_MEMOIR_DSN"]) as dsn:
        install(dsn)
        with connect(dsn) as db:
            simulation = Simulation(db, users, seed)
            for day in range(days):
                simulation.step()
                if day % 10 == 9:
                    print(f"day {day + 1}: {simulation.counts['turns']} turns", file=sys.stderr, flush=True)
            print(simulation.report())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
