"""The memory tool's tests of anthropics/anthropic-sdk-python, MemoirMemoryTool in the place of files on a disk."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pg_memoir import AsyncMemoir
from pg_memoir_integrations.anthropic import AsyncMemoirMemoryTool, MemoirMemoryTool
from theirs import DSN, adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401


def get_directory_snapshot(user: str) -> dict[str, str]:
    """What their function finds on a disk."""
    files = memoir().search_documents(user, ["memories"], limit=10000)
    return {"/".join([*file.namespace, file.key]): file.value["text"] for file in files}


theirs = module("tests.lib.tools.memory_tools.test_filesystem")
INSIDES = r"symlink|umask|\bos\.|Path\(|st_mode|\.mkdir|write_text"
adopt(theirs, globals(), INSIDES, get_directory_snapshot=get_directory_snapshot)


@pytest.fixture
def sync_local_filesystem_tool() -> MemoirMemoryTool:
    tool: Any = MemoirMemoryTool(memoir(), somebody())
    tool.base_path = tool.files.user
    return tool


@pytest.fixture
async def async_local_filesystem_tool() -> AsyncIterator[AsyncMemoirMemoryTool]:
    async with AsyncMemoir(DSN) as client:  # an open pool would keep the end of their loop waiting
        tool: Any = AsyncMemoirMemoryTool(client, somebody())
        tool.base_path = tool.files.user
        yield tool
