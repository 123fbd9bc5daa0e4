"""The demo on the shipped sample: the old answer is in the list, the explanation beside it, a second run adds nothing."""

import re
import subprocess
import sys
from pathlib import Path

from pg_memoir import Memoir

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo.py"


def demo(dsn, *arguments):
    done = subprocess.run([sys.executable, str(DEMO), "--dsn", dsn, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def settled(output):
    """Without what a run has of its own: times, and the first run's embedding."""
    lines = [re.sub(r"compiled in \d+ ms", "", line) for line in output.splitlines()]
    return [line for line in lines if not line.startswith(("stored", "embedded", "nothing", "no embedder"))]


def test_demo(memoir_dsn, tmp_path):
    first, second = demo(memoir_dsn), demo(memoir_dsn)
    assert settled(first) == settled(second)
    celadon, order = first.split("ines asks: ")[1:]
    said, why = celadon.split("Why these")
    assert "60 °C per hour from 1100 to 950 °C" in " ".join(said.split()) and "celadon-cracks" in why
    text = " ".join(order.split("Why these")[0].split())
    assert "60 sets of espresso cups, is due on 11 April" in text and "three fingers" in text
    assert "is due on 28 March." not in text  # superseded
    assert all(len(line) <= 110 for line in settled(first))
    with Memoir(memoir_dsn) as memoir:
        assert len(memoir.history("ines", "celadon-cracks")) == 10
        assert len(memoir.recall("ines", "Lindenhof order sets cups due", kinds=["memory"])) == 1
    own = tmp_path / "own.jsonl"
    own.write_text('[{"role": "user", "content": "The spare key is under the blue pot."}]\n[{"role": "user", "content": "Hm"}]')
    assert "blue pot" in demo(memoir_dsn, str(own), "--ask", "Where is the spare key?").split("The list to send")[1]


def test_demo_asks_for_what_it_needs(memoir_dsn, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text('[{"role": "user", "content": "Hi"}]')
    for arguments in ([str(own)], [str(tmp_path / "none.json"), "--ask", "x"]):
        done = subprocess.run([sys.executable, str(DEMO), "--dsn", memoir_dsn, *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith("demo: ")
