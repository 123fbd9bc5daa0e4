"""One batch of queued model work: claim → commit → call → store, the same in a database backend and in a worker
outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from .parent import ModelUnavailable, run_requests
from .stretches import locate


class Database(Protocol):
    """Calls a function of schema memoir in a transaction of its own and returns its rows as dicts."""

    def __call__(self, function: str, *arguments: Any) -> list[dict[str, Any]]: ...


def run_batch(
    db: Database, limit: int, interrupt: Callable[[], object] = lambda: None, python: str | None = None
) -> dict[str, Any]:
    """Works on up to `limit` work items; returns counts: calls, stored, failed, tokens, cost (microcents); "error":
    the last.

    Raises ModelUnavailable when no call was possible at all. Whatever ends it, what was not stored is back in the
    queue.
    """
    [row] = db("llm_config")
    config = row["llm_config"]
    counts: dict[str, Any] = {"calls": 0, "stored": 0, "failed": 0, "tokens": 0, "cost": 0}
    if not config:
        return counts
    config = json.loads(config) if isinstance(config, str) else config
    claims = {row["work_id"]: row for row in db("claim_model_calls", limit)}
    for claim in claims.values():
        claim["input"] = json.loads(claim["input"]) if isinstance(claim["input"], str) else claim["input"]
    requests = [{"id": work, "kind": row["kind"], "input": row["input"]} for work, row in claims.items()]
    if not requests:
        return counts
    try:
        for result in run_requests(config, requests, interrupt, python):
            claim = claims.pop(result["id"])
            usage = result["usage"]
            if "output" in result:
                made_by = f"{config['model']} {result['prompt']}"
                output = result["output"]
                if claim["kind"] == "extract":
                    output = locate(claim["input"], output)
                [row] = db("store_model_result", claim["work_id"], claim["lease_id"], output, made_by, usage)
                done = row["store_model_result"]
            elif result.get("unsent"):
                db("release_work", claim["work_id"], claim["lease_id"])
                continue
            else:
                [row] = db(
                    "fail_model_call",
                    claim["work_id"],
                    claim["lease_id"],
                    result["error"],
                    result["final"],
                    result.get("retry_after"),
                    usage,
                )
                done = row["fail_model_call"]
            done = json.loads(done) if isinstance(done, str) else done
            counts["calls"] += 1
            for key in ("stored", "failed", "tokens", "cost"):
                counts[key] += done.get(key, 0)
            if done.get("error"):
                counts["error"] = done["error"]
            for rest in claims.values():
                db("heartbeat", rest["work_id"], rest["lease_id"], config["lease"])
    finally:
        for rest in claims.values():
            db("release_work", rest["work_id"], rest["lease_id"])
    return counts


__all__ = ["Database", "ModelUnavailable", "run_batch"]
