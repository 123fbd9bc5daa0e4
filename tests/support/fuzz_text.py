"""Long texts of one shape each: a function whose cost grows faster than its text is found by them."""

import json

# What a long text repeats: each character class, what opens and never closes, what nearly matches.
SHAPES: list[str] = json.loads(r"""[
    "<", "\"", "`", "`` ", "``` ", " ", "a", "1", "\n", "\t", "<div>", "<p class=\"x\">y</p>\n", "“a ", "a b ", ". ",
    "? ", "x;\n", "> x\n", "| x |\n", "here's ", "translate ", "from: x\nto: y\n", "hey there, ", "not x ", "a.b ",
    "a@", "://", "你", "你好。", "😀", "2020-01-01 ", "yesterday ", "The Cat ", "key=", "password ", "total: a ", "I ",
    "k8s (kubernetes) ", "\"a\": ", "[", "(", "\\", "-", "_ ", "ab12 ", "n’t ", "DE12 3456 ", "1234 ",
    "I like my dog. "
]""")


def text_of(shape: str, length: int) -> str:
    return (shape * (length // len(shape) + 1))[:length]
