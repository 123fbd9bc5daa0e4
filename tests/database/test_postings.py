"""Words: whatever was merged and taken out, each rare word finds the turns that say it, and no others."""

import random

from calls import Db, call, persist, run_job, table

# Some begin alike, so that their letter needs several rows; some a tsvector must have quoted.
WORDS = [*(f"s{n}word" for n in range(400)), "apple", "bread", "c'est", "o'brien", "naïve", "漢字", "x/y/z.txt", "-5.3"]


def test_each_word_finds_its_turns(db: Db, user: str) -> None:
    rng = random.Random(5)
    said: dict[tuple[str, int], list[str]] = {}  # session and turn → the words of its text
    call(db, "set_user_settings", user, {"relevance_floor": 0, "relevance_share": 0})
    for step in range(24):
        session, count = f"s{step}", 45 if step == 3 else rng.choice((1, 2, 8))
        for turn in range(count):
            said[session, turn] = ["plain", *rng.choices(WORDS, k=rng.randint(3, 260 if rng.random() < 0.1 else 40))]
        persist(db, user, session, *(" ".join(said[session, turn]) for turn in range(count)))
        if step % 5 == 4:
            gone = f"s{rng.randrange(step)}"
            call(db, "erase_session", user, gone)
            said = {place: words for place, words in said.items() if place[0] != gone}
        if step == 3 or rng.random() < 0.4:
            run_job(db, "merge")
        if step % 4 == 3:
            for word in rng.sample(WORDS[:402], 12):
                rows = table(db, "recall", user, word, limit=200, columns="session, turn_index, words_score")
                found = {(of, turn) for of, turn, score in rows if score}
                assert found == {place for place, words in said.items() if word in words}, word


def test_misspelt_names_are_found(db: Db, user: str) -> None:
    cluster = "Our Kubernetes cluster moved to the new building."
    persist(db, user, "s", cluster, "Noted.", "The garden needs water.", "I see.")
    for is_merged in (False, True):
        if is_merged:
            db.execute("call memoir.run_job('merge')")

        def by_words(query: str) -> list[str]:
            return [text for text, words in table(db, "recall", user, query, columns="content, words_score") if words]

        assert by_words("kubarnetes") == [cluster]
        assert cluster in by_words("garden Kubarnetes") and cluster not in by_words("garden kubarnetes")
