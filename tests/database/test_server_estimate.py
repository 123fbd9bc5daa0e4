"""sql/text/tokens.sql: the estimate beside exact counts, its sum over parts, images, and which tokenizer serves."""

import base64
import json
import random
import string
import struct
from functools import partial

import pytest
from cases import read_cases
from internals import has_python, run_internal
from pg_memoir_server import tokens

SAMPLES = [(case["kind"], case["text"]) for case in read_cases("token_samples")]


def estimates(db, texts: list[str]) -> list[int]:
    each = "select memoir.estimate_tokens(t) from unnest(%s::text[]) with ordinality x(t, n) order by n"
    return [tokens for (tokens,) in db.execute(each, [texts])]


def exact(texts: list[str]) -> list[int]:
    return list(map(max, *(tokens.count(texts, name) for name in tokens.ENCODINGS)))


def test_never_below_the_exact_count_on_texts_people_write(db):
    texts = [text for _, text in SAMPLES]
    ratios = {kind: estimate / count for (kind, _), estimate, count in zip(SAMPLES, estimates(db, texts), exact(texts))}
    assert min(ratios.values()) >= 1, ratios
    assert max(ratios.values()) <= 1.75, ratios
    english = [ratio for kind, ratio in ratios.items() if kind.startswith("English")]
    assert sum(english) / len(english) <= 1.3


def noise(dice: random.Random) -> str:
    """Text nobody writes."""
    n = dice.choice([1, 7, 60, 400])
    kinds = [
        lambda: "".join(dice.choices(string.ascii_lowercase, k=n)),
        lambda: "".join(dice.choices(string.ascii_letters + string.digits, k=n)),
        lambda: base64.b64encode(dice.randbytes(n)).decode(),
        lambda: dice.randbytes(n).hex(),
        lambda: "".join(dice.choices(string.printable, k=n)),
        lambda: "".join(dice.choices("ab\u200b\u200d\u2060\ufeff\u0301\u0323", k=n)),
        lambda: "".join(chr(dice.randint(0x80, 0xD7FF)) for _ in range(n)),
        lambda: "".join(chr(dice.randint(0x10000, 0x10FFFF)) for _ in range(n)),
        lambda: dice.choice(["the ", "ing", "\n", " ", "7", "😀", "好", "é", "_", "A"]) * n,
    ]
    return dice.choice(kinds)()


def test_hostile_texts_are_not_grossly_under_estimated(db):
    dice = random.Random(11)
    texts = [noise(dice) for _ in range(1500)]
    counts = exact(texts)
    ratios = sorted((estimate / count, text[:40]) for estimate, count, text in zip(estimates(db, texts), counts, texts))
    assert ratios[0][0] >= 0.4, ratios[:5]
    assert ratios[len(ratios) // 20][0] >= 0.7
    counted = "array(select memoir.max_tokens(t) from unnest(%s::text[]) with ordinality x(t, n) order by n)"
    bounds = db.execute(f"select {counted}", [texts]).fetchone()[0]
    assert all(bound >= count for bound, count in zip(bounds, counts))


def test_sum_over_parts_is_never_below_the_whole(db):
    dice = random.Random(13)
    wholes, cuts = [], []
    for _ in range(3000):
        sample = dice.choice(SAMPLES)[1]
        text = dice.choice([lambda: sample, lambda: noise(dice), lambda: noise(dice) + sample[:50]])()
        wholes.append(text)
        cuts.append(dice.randint(0, len(text)))
    whole = estimates(db, wholes)
    left = estimates(db, [text[:cut] for text, cut in zip(wholes, cuts)])
    right = estimates(db, [text[cut:] for text, cut in zip(wholes, cuts)])
    assert all(w <= a + b for w, a, b in zip(whole, left, right))


def test_ends(db):
    assert db.execute(
        "select memoir.estimate_tokens(null), memoir.estimate_tokens(''), memoir.max_tokens(null), memoir.max_tokens('é')"
    ).fetchone() == (0, 0, 0, 2)
    long = db.execute("select memoir.estimate_tokens(repeat('好', 1000000))").fetchone()[0]
    assert 1_000_000 <= long <= 2_000_000


def test_counting_is_exact_with_plpython(db):
    if not has_python(db):
        pytest.skip("PL/Python is not installed: this server counts by the estimate")
    texts = [text for _, text in SAMPLES] + ["", "<|endoftext|>"]
    for name in tokens.ENCODINGS:
        assert run_internal(db, "tokenizer_used", name) == name
        assert run_internal(db, "count_tokens", texts, name) == tokens.count(texts, name)


def png(w, h):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", w, h) + bytes(9)


def gif(w, h):
    return b"GIF89a" + struct.pack("<HH", w, h) + bytes(7)


def jpeg(w, h):
    exif = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, h, w, 3) + bytes(9)
    return b"\xff\xd8" + exif + b"\xff\xc4\x00\x04\x00\x00" + frame + b"\xff\xda\x00\x02"


def webp(kind, w, h):
    body = {
        b"VP8 ": bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", w, h),
        b"VP8L": b"\x2f" + struct.pack("<I", (w - 1) | (h - 1) << 14) + bytes(8),
        b"VP8X": bytes(4) + struct.pack("<I", w - 1)[:3] + struct.pack("<I", h - 1)[:3],
    }[kind]
    return b"RIFF" + struct.pack("<I", 30) + b"WEBP" + kind + struct.pack("<I", len(body)) + body + bytes(4)


FORMATS = [png, gif, jpeg, *(partial(webp, kind) for kind in (b"VP8 ", b"VP8L", b"VP8X"))]


def image_tokens(db, part: dict, provider: str) -> int:
    rule = {"openai": "tiles:1", "anthropic": "area:1568:1600"}.get(provider, provider)
    return run_internal(db, "image_tokens", json.dumps(part), rule)


def as_part(data: bytes, **more) -> dict:
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url, **more}}


@pytest.mark.parametrize("size", [(1, 1), (640, 480), (4000, 3000), (16383, 20)])
def test_sizes_are_read_from_the_header(db, size):
    for make in FORMATS:
        assert run_internal(db, "image_size", make(*size)) == list(size)


# Figures of the providers' own examples where they give any: docs/explain/tokens.md. Size None: an image by its address.
def test_image_tokens_follow_the_providers_rule(db):
    for rule, size, counted in (
        ("openai", (512, 512), 255),
        ("openai", (513, 513), 765),
        ("openai", (2048, 4096), 1105),
        ("openai", (8000, 100), 765),
        ("openai", None, 1445),
        ("anthropic", (10, 10), 1),
        ("anthropic", (200, 200), 64),
        ("anthropic", (1092, 1092), 1590),
        ("anthropic", (2048, 4096), 1600),
        ("anthropic", None, 1600),
        ("tiles:33.336", (512, 512), 8501),
        ("patches:1.62", (1024, 1024), 1659),
        ("patches:2.46", None, 3779),
        ("area:2576:4784", (2576, 1449), 4784),
        ("flat:1120", (1000, 1000), 1120),
    ):
        part = as_part(png(*size)) if size else {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        assert image_tokens(db, part, rule) == counted


BROKEN = {
    "empty": as_part(b""),
    "cut": as_part(b"\x89PNG"),
    "no size": as_part(jpeg(0, 0)),
    "no frame": as_part(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 2000),
    "no base64": {"image_url": {"url": "data:image/png;base64,!!!"}},
    "no address": {},
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_image_counts_the_maximum(db, name):
    assert [image_tokens(db, BROKEN[name], rule) for rule in ("openai", "anthropic")] == [1445, 1600]
