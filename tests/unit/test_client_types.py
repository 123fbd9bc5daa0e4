"""mypy --strict on the packages, and on what an application writes: the README's examples, and mistakes it must catch."""

import ast
import subprocess
import sys
from pathlib import Path

import pg_memoir
import pytest
from readme import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
MISTAKES = """
from pg_memoir import AsyncMemoir, Memoir
memoir, other = Memoir("x"), AsyncMemoir("x")
memoir.compile_context("ann", "s", "q", budjet=1)
memoir.session("ann", "s").compile_context(5)
memoir.recall("ann", "q")[0].contnet
memoir.persist_turn("ann", "s", [], usage=[])
other.forget("ann", "m").result()
async def use() -> int:
    return (await other.recall("ann", "q"))[0].content
memoir.remember("ann", "x", importnace="high")
memoir.session("ann", "s", modell="gpt-4o")
memoir.session("ann", "s").append(messages=[], key=5)
memoir.compile_anthropic("ann", "s", budget="1")["sistem"]
async def sessions() -> str:
    session = other.session("ann", "s", model="gpt-4o")
    await session.compile_context("q", budget=10)
    good: str = (await session.persist_turn([]))["mark"]
    return (await session.context("q"))["tokens"]
"""


def test_types(tmp_path):
    pytest.importorskip("mypy")
    for name, code in EXAMPLES.items():
        # The SDK has a type of its own for tools, which is not ours to show.
        (tmp_path / f"example_{name}.py").write_text(
            code.replace("\ntools = [", "\ntools: Any = [").replace("import os", "from typing import Any\nimport os", 1)
        )
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    command = [sys.executable, "-m", "mypy", "--cache-dir", ".mypy_cache"]
    packages = ["client/pg_memoir", "cli/pg_memoir_cli", "gateway/pg_memoir_gateway", "plpython/pg_memoir_server"]
    command += [*packages, *map(str, tmp_path.glob("*.py"))]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    errors = [line for line in result.stdout.splitlines() if ": error:" in line]
    wrong = [line for line in errors if "mistakes.py" not in line]
    assert not wrong and not result.stderr, result.stdout + result.stderr
    caught = {int(line.split("mistakes.py:")[1].split(":")[0]) for line in errors}
    assert caught == {4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 19}, result.stdout


def _code_lines(path: Path) -> int:
    """Lines that are neither blank, comment nor docstring."""
    text = path.read_text()
    strings = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and _is_string(node.value)]
    documented = {line for node in strings for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = [line.strip() for n, line in enumerate(text.splitlines(), 1) if n not in documented]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_core_is_thin() -> None:
    """The package's own modules run calls and read replies. Definitions (functions), types and extras are apart."""
    core = {path.name: _code_lines(path) for path in Path(pg_memoir.__file__).parent.glob("*.py")}
    assert sum(core.values()) <= 1_200, core
