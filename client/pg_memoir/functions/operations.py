"""Settings, models, embeddings, jobs: for whoever runs the database, and for workers. How to read the definitions:
call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any, Literal

from ..arguments import BigInt, Day, Id, Json, List, Numeric, Object, Vector, Vectors
from ..call import procedure, rows, value
from ..types import Claim, Job, ModelWork, PairClaim, RankingProfile, SyncState, TurnsClaim, UnreadClaim, UserRow


class Operations:
    """Settings, models, embeddings, jobs: for whoever runs the database, and for workers."""

    @value
    def set_setting(self, key: str, value: Json) -> None:
        """Changes a setting for the whole install; admin only. Raises InvalidSettingError, NotAuthorizedError."""

    @value
    def reset_setting(self, key: str) -> None:
        """Returns a setting to its default; admin only. Raises InvalidSettingError, NotAuthorizedError."""

    @value
    def set_user_settings(self, user: str, settings: Object) -> dict[str, Any]:
        """Overrides settings for one user, None removes an override; returns all overrides. Those of a session are
        given when it is opened. Raises InvalidSettingError."""

    @rows
    def list_users(self, *, after_user: str | None = None, limit: int | None = None) -> list[UserRow]:
        """The users that the login may read, by name, at most `limit` (100) behind `after_user`."""

    @rows
    def health_problems(self) -> list[dict[str, Any]]:
        """What is not as it should be: severity (red, yellow), problem, remedy. Admin only. Raises
        NotAuthorizedError."""

    @rows
    def list_settings(self) -> list[dict[str, Any]]:
        """Every setting: key, value, default_value, kind, min_value, max_value, overridable, description."""

    @value
    def register_model(
        self,
        model: str,
        provider: Literal["openai", "anthropic"],
        context_window: int,
        max_output: int,
        *,
        tokenizer: str | None = None,
        message_overhead: int | None = None,
        prompt_microcents_per_1k: BigInt | None = None,
        completion_microcents_per_1k: BigInt | None = None,
        images: str | None = None,
        cache_read_rate: float | None = None,
        cache_write_rate: float | None = None,
        cache_write_1h_rate: float | None = None,
    ) -> None:
        """Registers or replaces a chat model; admin only. Window, output and overhead per message in tokens, prices
        in microcents (1e-8 of the currency's unit) per 1,000 tokens; `images`: the rule by which images count, such
        as "tiles:1", "patches:1.62" or "area:1568:1600". Rates: what a token read from the prompt cache or written
        there costs, as a share of a prompt token's price. Raises InvalidArgumentError, NotAuthorizedError."""

    @value
    def register_embedding_model(
        self,
        name: str,
        provider: str,
        dimension: int,
        *,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        endpoint: str | None = None,
        languages: Sequence[str] | None = None,
        microcents_per_1k: BigInt | None = None,
    ) -> int:
        """Registers an embedding model beside the present one; the backlog is then embedded with both until
        switch_embedding_model. `languages`: those that it reads, as two letters; None: any. `microcents_per_1k`:
        what 1,000 tokens cost, in 1e-8 of the currency's unit. Returns its number."""

    @value
    def switch_embedding_model(self, name: str) -> None:
        """Makes a registered embedding model the one that queries use, in one transaction. Raises UnknownModelError."""

    @rows
    def sync_semantic(self, user: str, *, dry_run: bool | None = None, model: str | None = None) -> list[SyncState]:
        """Queues whatever of a user has no vector yet, one row for each embedding model (or of `model`): how many
        texts and tokens, what that costs, how far the model has come, what is left out. With `dry_run` it only says.
        Raises UnknownModelError."""

    @rows
    def list_namespaces(self) -> list[dict[str, Any]]:
        """What each namespace holds: namespace, users, sessions, turns, memories, tokens, cost_microcents,
        last_turn_at. Admin only."""

    @rows
    def embedding_progress(self) -> list[dict[str, Any]]:
        """How much of the backlog each embedding model has, one dict each."""

    @rows
    def claim_embeddings(self, *, limit: int | None = None, model: str | None = None) -> list[Claim]:
        """Leases up to `limit` (64) texts of the backlog to this worker."""

    @value
    def store_embeddings(self, user_ids: Sequence[Id], item_nos: Sequence[int], embeddings: Vectors, model: str) -> int:
        """Stores vectors for claimed texts, one by one; returns how many. Raises DimensionMismatchError."""

    @rows
    def claim_unread(self, *, limit: int | None = None) -> list[UnreadClaim]:
        """Leases up to `limit` (256) turns that nobody has looked through for secrets."""

    @value
    def store_secrets(self, work: BigInt, lease: Id, item_nos: Sequence[int], kinds: Sequence[str]) -> int:
        """Stores the kinds of secrets in claimed turns of one lease ("" for none); returns how many turns it marked
        secret."""

    @rows
    def claim_turns(self, *, limit: int | None = None) -> list[TurnsClaim]:
        """Leases the next turns of a session that nobody has read yet, up to `limit` (64): one claim at most."""

    @value
    def turns_context(self, work: BigInt, lease: Id, reading: Object) -> dict[str, Any] | None:
        """Returns earlier texts that have to do with claimed turns, None where the lease had run out."""

    @value
    def store_turns(self, work: BigInt, lease: Id, reading: Object, results: Object | None) -> dict[str, Any] | None:
        """Stores what was read of claimed turns; returns counts, None where the lease had run out."""

    @rows
    def claim_judgements(self, *, limit: int | None = None) -> list[PairClaim]:
        """Leases about `limit` (16) pairs of similar memories to this judge."""

    @value
    def store_judgements(
        self, user_ids: Sequence[Id], memory_ids: Sequence[Id], other_ids: Sequence[Id], scores: Vector, judge: str
    ) -> int:
        """Stores how surely claimed pairs contradict each other, 0 to 1, one by one; returns how many. `judge`: who
        found it."""

    @procedure
    def ensure_partitions(self) -> None:
        """Makes the partitions of the months ahead."""

    @procedure
    def run_job(self, job: str, *, seconds: int | None = None, wait: int | None = None) -> None:
        """Runs a maintenance job until nothing is left to do, for at most `seconds`; the connection needs
        statement_timeout 0. If the job is already running, it waits up to `wait` seconds (120) for that run and then
        does its own; with 0 it leaves that run alone. A standby does nothing. Raises JobFailedError, JobRunningError,
        InvalidArgumentError, NotAuthorizedError."""

    @value
    def cancel_overdue(self) -> int:
        """Cancels what runs of jobs have been at for longer than setting job_unit_seconds; returns how many. Every
        `run_job` begins with it."""

    @rows
    def list_jobs(self) -> list[Job]:
        """Maintenance jobs with their schedules, when they were last due, and how their last run went."""

    @value
    def set_schedule(self, job: str, schedule: str | None) -> str:
        """Sets when a job runs: a cron expression in UTC, "10 seconds", "off", or None for the release's; returns the
        schedule in force. Raises InvalidSettingError, InvalidArgumentError, NotAuthorizedError."""

    @rows
    def list_ranking_profiles(self, user: str | None) -> list[RankingProfile]:
        """Weights of the ranking that hold for a user, or with None all there are, each with its source."""

    @value
    def set_ranking_profile(self, user: str | None, weights: Object, source: str) -> int:
        """Ranks by weights of one's own, a user's or with None the install's; returns the version. `source`: the
        command and data they were learnt from. Raises InvalidSettingError."""

    @value
    def reset_ranking_profile(self, user: str | None) -> bool:
        """Drops a user's own weights, or with None the install's; whether there were any."""

    @value
    def retry_work(self, work: BigInt) -> bool:
        """Gives a dead letter of the queue another set of attempts; False if there is none of that number. Admin
        only."""

    @rows
    def bare_statements(self) -> list[dict[str, Any]]:
        """What maintenance can't do inside a function, as statements to send one by one, each with its reason. Jobs and
        admin only."""

    @rows
    def archive_plan(self) -> list[dict[str, Any]]:
        """Months of turns past retention: part, month, turns, uncompacted, sessions_open, export (how far it is). Admin
        only."""

    @rows
    def export_month(
        self, part: int, month: Day, *, after: str | None = None, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """Turns of a month and hash part, `limit` (1000) at a time behind the key `after`: dicts of key and turn. Admin
        only."""

    @value
    def confirm_export(self, part: int, month: Day, turns: BigInt, destination: str) -> bool:
        """Says that all `turns` of a month and hash part are written away, and where; the job archive then drops them.
        False if none is waiting. Admin only. Raises InvalidArgumentError if there are not so many."""

    @value
    def restore_month(
        self, part: int, month: Day, turns: List | None = None, *, days: int | None = None
    ) -> dict[str, int]:
        """Brings an archived month of a hash part back, from its own table or from `turns` of export_month, any
        number at a time; it stays `days` (30) at least. Returns how many are restored and how many missing. Admin
        only."""

    @rows
    def export_memories(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Archived memories whose text is still here, up to `limit` (1000): dicts of user_id, memory_id and memory.
        Admin only."""

    @value
    def confirm_memories(self, user_ids: Sequence[Id], memory_ids: Sequence[Id]) -> int:
        """Says that archived memories are written away, one by one: their text goes. Returns how many. Admin
        only."""

    @rows
    def claim_model_calls(self, limit: int | None = None) -> list[ModelWork]:
        """Leases up to `limit` (4) pieces of work for a language model, with the input of their prompts."""

    @value
    def store_model_result(
        self, work: BigInt, lease: Id, output: Object, made_by: str, usage: Object | None = None
    ) -> dict[str, Any]:
        """Stores what a model answered for claimed work, who made it, and the tokens it took; returns stored, tokens,
        cost."""

    @value
    def fail_model_call(
        self,
        work: BigInt,
        lease: Id,
        error: str,
        final: bool | None = None,
        retry_seconds: Numeric | None = None,
        usage: Object | None = None,
    ) -> dict[str, Any]:
        """Gives model work back after a failed call, to be tried again, or with `final` as a dead letter."""

    @value
    def release_work(self, work: BigInt, lease: Id) -> bool:
        """Gives claimed work back that was not begun; False if the lease had run out."""

    @value
    def fail_work(self, work: BigInt, lease: Id, error: str) -> bool:
        """Gives claimed work back after an error, to be tried again later; False if the lease had run out."""

    @value
    def heartbeat(self, work: BigInt, lease: Id, seconds: int | None = None) -> bool:
        """Keeps a lease for another `seconds` (300); False if it ran out."""

    @value
    def llm_config(self) -> dict[str, Any] | None:
        """How the language model is called (settings llm_*); None if none is configured. Raises NotAuthorizedError."""
