"""The embedding backlog inside the database: a loop of short transactions around calls of the model.

Runs in a procedure, so that it can commit: claim → commit → call → store → commit. After a commit no snapshot is
held, hence a slow model holds back neither vacuum nor any lock. What commits runs under its caller's search_path:
types are named with their schema, and there are no operators.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from . import embed_client, shim

CALL_TIMEOUT_MS = 60_000


class ModelFailure(RuntimeError):
    """The model did not answer; what was claimed goes back to the queue."""


def run(plpy: Any, seconds: int, batch: int) -> None:
    """Embeds up to `batch` texts a step until the backlog is empty or `seconds` are over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if not step(plpy, batch):
                return
        except ModelFailure as error:
            plpy.warning(f"embedding backlog: {error}")
            return


def run_job(plpy: Any, job: str, run_id: int) -> None:
    """A run of a job of run_job() that can't be SQL alone: what its steps did goes to job_runs, errors too."""
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "embed": lambda: {"texts": step(plpy, 32)},
        "model": lambda: _model_step(plpy),
    }
    spent = 0
    while True:
        try:
            if job not in steps:
                raise ModelFailure(f"the installed package does not know job {job}")
            counts = steps[job]()
            cap = counts.pop("cost_cap", 0)
            spent += counts.get("cost", 0)
            result = counts | {"more": any(counts.values())}
            if cap and spent >= cap:
                result["outcome"] = "cost cap"
        except ModelFailure as error:
            result = {"outcome": "failed", "error": str(error)}
        except plpy.SPIError as error:
            plpy.rollback()
            result = {"outcome": "cancelled" if error.sqlstate == "57014" else "failed", "error": str(error)}
        if not _note(plpy, run_id, result):
            return


def _model_step(plpy: Any) -> dict[str, Any]:
    """One batch of model work, with functions called as transactions of their own."""
    from .llm.loop import ModelUnavailable, run_batch

    def call(function: str, *arguments: object) -> list[dict[str, Any]]:
        types = _TYPES[function]
        placeholders = ", ".join(f"${n}" for n in range(1, len(types) + 1))
        values = [json.dumps(value) if isinstance(value, (dict, list)) else value for value in arguments]
        rows = [
            dict(row)
            for row in plpy.execute(plpy.prepare(f"select * from memoir.{function}({placeholders})", types), values)
        ]
        plpy.commit()
        return rows

    try:
        counts = run_batch(call, 4, shim.interrupts_between(plpy))
        config = call("llm_config")[0]["llm_config"] if counts["calls"] else None
        return counts | ({"cost_cap": json.loads(config)["cost_cap"]} if config else {})
    except ModelUnavailable as error:
        raise ModelFailure(str(error)) from None


_TYPES = {
    "llm_config": [],
    "claim_model_calls": ["integer"],
    "store_model_result": ["bigint", "uuid", "jsonb", "text", "jsonb"],
    "fail_model_call": ["bigint", "uuid", "text", "boolean", "numeric", "jsonb"],
    "release_work": ["bigint", "uuid"],
    "heartbeat": ["bigint", "uuid", "integer"],
}


def _note(plpy: Any, run_id: int, result: dict[str, Any]) -> bool:
    plan = plpy.prepare("select _memoir.job_note($1, $2) as goes_on", ["pg_catalog.int8", "pg_catalog.jsonb"])
    goes_on = plpy.execute(plan, [run_id, json.dumps(result)])[0]["goes_on"]
    plpy.commit()
    return bool(goes_on)


def step(plpy: Any, batch: int) -> int:
    """One batch: how many texts were claimed; raises ModelFailure after giving them back."""
    claim = plpy.prepare("select * from memoir.claim_embeddings($1)", ["pg_catalog.int4"])
    rows = list(plpy.execute(claim, [batch]))
    plpy.commit()
    for model in sorted({row["model"] for row in rows}):
        mine = _renew_leases(plpy, [row for row in rows if row["model"] == model])
        if not mine:
            continue
        try:
            vectors = _embed(plpy, model, [row["text"] for row in mine])
        except ModelFailure as error:
            _give_back(plpy, mine, str(error))
            raise
        _store(plpy, mine, vectors, model)
    return len(rows)


def _renew_leases(plpy: Any, rows: list[Any]) -> list[Any]:
    """Those whose lease still holds, and does for another while: the models of a batch are called one after another."""
    beat = plpy.prepare("select memoir.heartbeat($1, $2) as kept", ["pg_catalog.int8", "pg_catalog.uuid"])
    kept = {
        lease: plpy.execute(beat, lease)[0]["kept"]
        for lease in sorted({(row["work_id"], row["lease_id"]) for row in rows})
    }
    plpy.commit()
    return [row for row in rows if kept[row["work_id"], row["lease_id"]]]


def _embed(plpy: Any, model: str, texts: list[str]) -> list[list[float]]:
    where = plpy.execute(plpy.prepare("select * from _memoir.embedding_endpoint($1)", ["pg_catalog.text"]), [model])[0]
    plpy.commit()
    if where["provider"] == "embedder":
        if not where["address"]:
            raise ModelFailure("no embedder is configured (setting embedder_socket)")
        try:
            return embed_client.embed_batch(
                where["address"], model, texts, CALL_TIMEOUT_MS, shim.interrupts_between(plpy)
            )
        except embed_client.EmbedderError as error:
            raise ModelFailure(str(error)) from None
    if where["provider"] == "openai":
        vectors, problem = shim.embed_http(where["address"], model, texts, CALL_TIMEOUT_MS, retries=3)
    else:
        vectors, problem = shim.embed_local(model, texts, "{}")
    if vectors is None:
        raise ModelFailure(problem or "no vectors")
    return vectors


def _store(plpy: Any, rows: list[Any], vectors: list[list[float]], model: str) -> None:
    plan = plpy.prepare(
        "select memoir.store_embeddings($1, $2, $3, $4)",
        ["pg_catalog.uuid[]", "pg_catalog.int4[]", "pg_catalog.float4[]", "pg_catalog.text"],
    )
    flat = [number for vector in vectors for number in vector]
    plpy.execute(plan, [[row["user_id"] for row in rows], [row["item_no"] for row in rows], flat, model])
    plpy.commit()


def _give_back(plpy: Any, rows: list[Any], problem: str) -> None:
    types = ["pg_catalog.int8", "pg_catalog.uuid", "pg_catalog.text"]
    plan = plpy.prepare("select memoir.fail_work($1, $2, $3)", types)
    for work, lease in sorted({(row["work_id"], row["lease_id"]) for row in rows}):
        plpy.execute(plan, [work, lease, problem])
    plpy.commit()
