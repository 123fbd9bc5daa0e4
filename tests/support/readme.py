"""The examples of the client's README that are tested: {name: code}."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "client" / "README.md"
EXAMPLES = dict(
    re.findall(r"<!-- tested: test_client_readme.py \((\w+)\) -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
)
