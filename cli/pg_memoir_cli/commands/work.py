"""Work beside the database: worker, embedding-model."""

from __future__ import annotations

from typing import Annotated

import typer

from ..app import Dsn, Stop, app, connected, connection_string
from ..embedder import DEFAULT_MODEL

_WORK = "Running it"
Endpoint = Annotated[
    str | None, typer.Option(metavar="URL", help="An OpenAI-compatible server, such as http://localhost:11434/v1.")
]
ApiKeyEnv = Annotated[str | None, typer.Option(metavar="NAME", help="The variable that holds its key (…_API_KEY).")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of the model.")]


def _lacks(error: ImportError) -> Stop:
    return Stop(f"models need more than is installed: {error}", "pip install 'pg-memoir[worker]'")


@app.command(rich_help_panel=_WORK)
def worker(
    jobs: Annotated[bool, typer.Option("--jobs", help="Also run the jobs, where pg_cron is missing.")] = False,
    llm: Annotated[bool, typer.Option("--llm", help="Also ask the language model (settings llm_*).")] = False,
    nli: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            envvar="PG_MEMOIR_NLI_MODEL",
            show_default=False,
            help="Also judge contradictions (setting judge: nli) with that cross-encoder.",
        ),
    ] = None,
    webhooks: Annotated[bool, typer.Option("--webhooks", help="Also send events to webhooks.")] = False,
    allow_local: Annotated[
        bool, typer.Option("--allow-local", help="Webhooks may be http:// and have addresses inside.")
    ] = False,
    no_embed: Annotated[bool, typer.Option("--no-embed", help="Embed nothing.")] = False,
    provider: Annotated[str, typer.Option(help="auto, onnx, sentence-transformers or openai.")] = "auto",
    model: Annotated[str, typer.Option(help="The model's name for the provider, or a folder.")] = DEFAULT_MODEL,
    registered_as: Annotated[
        str | None, typer.Option(help="Embedding model of the database to work for (default: --model's name).")
    ] = None,
    endpoint: Endpoint = None,
    api_key_env: ApiKeyEnv = None,
    limit: Annotated[int, typer.Option(min=1, help="Texts a batch.")] = 64,
    interval: Annotated[float, typer.Option(min=0.0, help="Seconds between looks at an empty backlog.")] = 5.0,
    threads: Threads = 1,
    once: Annotated[bool, typer.Option("--once", help="Stop when nothing is left.")] = False,
    dsn: Dsn = "",
) -> None:
    """Embed what was stored, and run jobs, from outside the database.

    For installs without PL/Python or pg_cron, or with the models on another machine. Any number may run at once; each
    batch is claimed, worked on with no transaction open, and stored. SIGTERM and Ctrl-C end it after the batch at hand.

    `pg-memoir worker --jobs` as a login with memoir_jobs is all that a managed PostgreSQL needs.
    """
    try:
        from pg_memoir_server.llm.loop import ModelUnavailable
        from pg_memoir_server.nli import NoSuchModel

        from ..worker import Options, work
    except ImportError as error:
        raise _lacks(error) from error
    options = Options(
        provider, model, registered_as, endpoint, api_key_env, limit, interval, threads, jobs, llm, nli,
        not no_embed, once, webhooks, allow_local,
    )  # fmt: skip
    try:
        work(connection_string(dsn), options)
    except (ModelUnavailable, NoSuchModel) as error:
        raise Stop(str(error)) from error


@app.command("embedding-model", rich_help_panel=_WORK)
def embedding_model(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder that the server reads too, or its name there.")
    ],
    endpoint: Endpoint = None,
    api_key_env: ApiKeyEnv = None,
    languages: Annotated[
        str | None, typer.Option(metavar="XX,XX", help="Those that it reads, as en,de (default: all).")
    ] = None,
    query_prefix: Annotated[str, typer.Option(help='What it wants before a question, such as "query: ".')] = "",
    document_prefix: Annotated[str, typer.Option(help='What it wants before a text, such as "passage: ".')] = "",
    microcents_per_1k: Annotated[
        int, typer.Option(min=0, help="What 1,000 tokens cost, in 1e-8 of the currency's unit.")
    ] = 0,
    threads: Threads = 1,
    dsn: Dsn = "",
) -> None:
    """Go over to another embedding model: register it, embed everything with it, switch.

    What is there goes on working meanwhile: until the last step questions use the former model. Run again after an
    interruption, it goes on where it stopped. An admin's login.

    `pg-memoir embedding-model bge-m3 --endpoint http://localhost:11434/v1`
    """
    try:
        from ..embedding_model import switch
    except ImportError as error:
        raise _lacks(error) from error
    with connected(dsn) as memoir:
        made = switch(
            memoir,
            connection_string(dsn),
            model,
            endpoint=endpoint,
            api_key_env=api_key_env,
            threads=threads,
            languages=languages.replace(",", " ").split() if languages else None,
            query_prefix=query_prefix,
            document_prefix=document_prefix,
            microcents_per_1k=microcents_per_1k,
        )
    print(f"{model}: {made} texts embedded; questions use it now")
