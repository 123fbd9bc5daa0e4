"""Each framework's example runs as printed, in an environment of its own, against stubs of the providers."""

import pytest
from commands import output_of
from frameworks import FRAMEWORKS, ROOT, python_of, surroundings
from servers import connect
from stubs import Answer, ChatCompletionsStub, MessagesStub, ResponsesStub

pytestmark = pytest.mark.extended

NOTE = ("t1", "memory", {"command": "create", "path": "/memories/edition.md", "file_text": "paper"})
SAID = Answer(text="Two issues were billed twice.")
STUBS = {
    "langgraph_store": (ChatCompletionsStub, [Answer(text="Noted."), Answer(text="Pretzels.")]),
    "openai_agents": (ResponsesStub, [Answer(text="Noted."), SAID]),
    "anthropic_memory": (MessagesStub, [Answer(tool_calls=[NOTE]), Answer(text="I noted it.")]),
    "langchain_memory": (ChatCompletionsStub, [Answer(text="Noted."), Answer(text="Pretzels.")]),
    "agent_framework_memory": (ChatCompletionsStub, [Answer(text="Noted."), Answer(text="Pretzels.")]),
}
PRINTED = {
    "langgraph_store": "Pretzels.\n",
    "openai_agents": "Two issues were billed twice.\nMy subscription number is A-17, the paper edition.\n",
    "anthropic_memory": "I noted it.\nmemories/edition.md · paper\n",
    "llama_index_memory": "I read the paper edition in the train.",
    "pydantic_ai_memory": "Noted.\nuser · I read the paper edition.\nassistant · Noted.\nuser · Which edition do I read?\nassistant · Noted.\n",
    "google_adk": "{'user:edition': 'paper'}\nI moved to Odense in March.\n",
    "langchain_memory": "Maps are on the second floor.\nI can't eat peanuts.\nPretzels.\n",
    "crewai_memory": "/alice · Alice reads the paper edition.\n",
    "agent_framework_memory": "Pretzels.\nuser · Which snack without peanuts may I eat?\nassistant · Pretzels.\n",
}  # fmt: skip


@pytest.mark.acceptance
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_example_prints_what_it_should(framework, memoir_dsn):
    python = python_of(framework)
    with connect(memoir_dsn) as admin:  # every example is about alice
        admin.execute("select memoir.erase_user('alice')")
    kind, script = STUBS.get(framework, (ChatCompletionsStub, [SAID]))
    with kind(*script) as stub:
        env = surroundings(
            PG_MEMOIR_DSN=memoir_dsn, OPENAI_API_KEY="stub", OPENAI_BASE_URL=stub.url, OPENAI_AGENTS_DISABLE_TRACING="1",
            ANTHROPIC_API_KEY="stub", ANTHROPIC_BASE_URL=stub.url, CREWAI_DISABLE_TELEMETRY="true",
        )  # fmt: skip
        example = ROOT / "integrations" / "examples" / f"{framework}.py"
        printed = output_of([python, "-W", "ignore", example], env=env)
        if framework in ("llama_index_memory", "crewai_memory"):  # which print more
            assert PRINTED[framework] in printed
        else:
            assert printed == PRINTED[framework]
        if "peanuts" in example.read_text():
            assert "I can't eat peanuts." in str(stub.requests[-1]["messages"])


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("framework", "suite"),
    [
        ("langchain_memory", "langchain_standard.py"),
        ("crewai_memory", "crewai_memory.py"),
        ("agent_framework_memory", "agent_framework_providers.py"),
    ],
)
def test_a_suite_passes(framework, suite, memoir_dsn):
    command = [python_of(framework), "-P", "-m", "pytest", "-c", "/dev/null", "--noconftest", "-o", "asyncio_mode=auto"]
    command += ["-q", "-W", "ignore", "-p", "no:cacheprovider", f"tests/external/{suite}"]
    output_of(command, cwd=ROOT, env=surroundings(PG_MEMOIR_DSN=memoir_dsn))
