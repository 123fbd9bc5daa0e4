"""Checks commit subjects and new text for the rules of CONTRIBUTING.md, "How to write".

    check_words.py [SINCE]      SINCE: the commit whose text was there before the rules

Reads git only. Prints each commit and line that breaks a rule, and ends with 1 if there is one. A clone without that
commit has nothing to compare with, and passes.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

SINCE = "20764297e35536fac2ee2168eddcccb8825cb2aa"

SUBJECT = re.compile(r"(?P<area>[a-z][a-z0-9, _-]*): (?P<verb>[a-z]+)\b[^;]*")
MOST = 60
"""Characters of a subject."""

NO_VERBS = frozenset("a all an each every it more no none nothing of the what who".split())

PROSE = ("*.md", "*.py", "*.sql", "*.toml", ":!docs/reference.md", ":!docs/reference/settings*.md")
"""Generated pages repeat what is checked at its source."""

COMMENT = re.compile(r"^\s*(?:#|--)\s+(?P<text>.+)|^\s*(?P<doc>\"\"\".+)")
"""Where prose stands in code. Pages are prose as a whole."""

BEGIN, VERBS = r"(?:^|[.!] |\"\"\")", "is|are|has|had|can|may|was|were|does|stands"
RULES = {
    "a noun clause as the subject": re.compile(rf"{BEGIN}(?:What|Who|Whoever|Whatever) (?:\w+ )?(?:{VERBS})\b[^?]*$"),
    "nobody or nothing as the subject": re.compile(rf"{BEGIN}(?:Nobody|Nothing|None)\b(?! of the above)[^?]*$"),
    "a phrase to avoid": re.compile(r"\b(?:so be it|as far as|of those|is told by)\b", re.I),
}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def find_subjects(since: str) -> Iterator[str]:
    """Yields what is wrong with the subjects of the commits since then."""
    for line in git("log", "--no-merges", "--format=%h %s", f"{since}..HEAD").splitlines():
        commit, _, subject = line.partition(" ")
        match = SUBJECT.fullmatch(subject)
        if not match or match["verb"] in NO_VERBS:
            yield f"{commit}: the subject is not of the form 'area: verb object': {subject}"
        if len(subject) > MOST:
            yield f"{commit}: the subject has {len(subject)} characters, over {MOST}: {subject}"


def find_sentences(since: str) -> Iterator[str]:
    """Yields the added lines that break a rule."""
    path = ""
    for line in git("diff", "--unified=0", "--no-color", "--diff-filter=AM", since, "--", *PROSE).splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif line.startswith("+"):
            text = line[1:].strip()
            if not path.endswith(".md"):
                match = COMMENT.match(line[1:])
                text = (match["text"] or match["doc"]) if match else ""
            for rule, pattern in RULES.items():
                if text and pattern.search(text):
                    yield f"{path}: {rule}: {text[:120]}"


def main(since: str) -> int:
    if subprocess.run(["git", "cat-file", "-e", since], capture_output=True, check=False).returncode:
        return 0
    found = [*find_subjects(since), *find_sentences(since)]
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else SINCE))
