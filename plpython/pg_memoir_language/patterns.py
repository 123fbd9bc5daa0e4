"""Regular expressions in the syntax that the data files share with PostgreSQL, matched by the package `regex`."""

from __future__ import annotations

from functools import cache

import regex

Pattern = regex.Pattern
Match = regex.Match


@cache
def compile_pattern(
    pattern: str, ignore_case: bool = False, lines: bool = False, longest: bool = False
) -> regex.Pattern[str]:
    """Compile a pattern once a process.

    In `lines` mode ^ and $ match at the ends of lines and . stays within one. `longest` finds the longest match, as
    PostgreSQL does, not the first.
    """
    flags = regex.V0 | (regex.MULTILINE if lines else regex.DOTALL)
    flags |= (regex.IGNORECASE if ignore_case else 0) | (regex.POSIX if longest else 0)
    return regex.compile(pattern if lines else _end_only(pattern), flags)


def _end_only(pattern: str) -> str:
    """Make $ match at the very end alone, as it does in PostgreSQL. In Python it also matches before a line feed."""
    parts, at, bracket = [], 0, False
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            parts.append(pattern[at : at + 2])
            at += 2
            continue
        if bracket and pattern.startswith("[:", at):
            end = pattern.index(":]", at) + 2
            parts.append(pattern[at:end])
            at = end
            continue
        if character == "[" and not bracket:
            bracket = True
            # A ] that comes first, also after ^, stands for itself.
            for opening in ("[^]", "[]"):
                if pattern.startswith(opening, at):
                    parts.append(opening[:-1] + "\\]")
                    at += len(opening)
                    break
            else:
                parts.append(character)
                at += 1
            continue
        if character == "]" and bracket:
            bracket = False
        parts.append(r"\Z" if character == "$" and not bracket else character)
        at += 1
    return "".join(parts)
