"""A text's language is decided once; its words are found in whatever languages the user writes."""

import pytest
from calls import Db, call, one, persist, recalled, remember, run_job, say, set_settings, table
from cases import read_cases
from internals import count_rows, is_unread, languages_by_number, own_rows, run_internal
from pg_memoir_language.languages import spoken_language
from psycopg.types.json import Jsonb
from servers import add_python, complete, connect, database

SAID = {case["language"]: case["text"] for case in read_cases("languages")}


def language(db: Db, text: str) -> str | None:
    """Its name."""
    return dict(languages_by_number(db)).get(run_internal(db, "text_language", text))


def test_texts_tell_their_languages(db: Db, user: str) -> None:
    """In SQL, as the package reads them, and as stored with each text."""
    for name, text in SAID.items():
        assert language(db, text) == language(db, text + " `parseInvoiceHeader`") == name
        assert run_internal(db, "spoken_language", text) == spoken_language(text)
    for number, text in enumerate(SAID.values()):
        persist(db, user, f"s{number}", text)
    remember(db, user, SAID["german"] + " Wir warten noch.")
    names = dict(languages_by_number(db))
    stored = own_rows(db, user, "search_items", "language", "true order by item_no")
    assert [names[number] for (number,) in stored] == [*SAID, "german"]


def test_short_text_has_the_language_of_the_setting(db: Db, user: str) -> None:
    assert language(db, "Rocky!") is None and language(db, "") is None and language(db, "12:30") is None
    for said, config, number in (
        ("Rocky!", "english", 1),
        ("Rocky!", "german", 2),
        (SAID["german"], "english", 2),
        (SAID["german"], "simple", 0),  # a configuration that is none of a language's is meant for all texts
    ):
        assert run_internal(db, "item_language", said, config) == number


@pytest.mark.parametrize("case", read_cases("words"), ids=lambda case: case["shares"])
def test_words_find_forms_topics_and_parts(db: Db, user: str, case: dict[str, str]) -> None:
    """The question shares a form of a word with the text, a topic without a word, or a part of an identifier."""
    said, asked = case["said"], case["asked"]
    others = [text for text in SAID.values() if language(db, text) != language(db, said)]
    say(db, user, "s", *others[:6], said, *others[6:12], answer="👍")
    assert recalled(db, user, asked, p_limit=1) == [said]


def test_word_counts_more_than_its_topic(db: Db, user: str) -> None:
    said = ["Das Haustier schläft auf dem Sofa", "Der Hund schläft auf dem Sofa"]
    say(db, user, "s", *said, SAID["english"], answer="👍")
    assert recalled(db, user, "Welches Haustier?", p_limit=2) == said


def test_question_uses_the_users_languages(db: Db, user: str) -> None:
    """English and German stem these words otherwise, and the question says nothing of its language."""
    said = "Ich habe noch keine Wanderungen und Radtouren geplant"
    say(db, user, "s", SAID["english"], said, "The weather is nice today, is it not?", answer="👍")
    assert recalled(db, user, "Wanderung?", p_limit=1) == [said]
    assert recalled(db, user, "Radtour Wanderungen", p_limit=1) == [said]


def test_export_import_and_merge_keep_languages(db: Db, user: str) -> None:
    said = "Unsere Nachbarn verkaufen ihre alten Häuser in Kassel"
    say(db, user, "s", *SAID.values(), said, answer="👍")
    set_settings(db, tail_items_max=16)
    run_job(db, "merge")
    assert recalled(db, user, "Wer verkauft ein Haus?", p_limit=1) == [said]
    lines = [Jsonb(line) for (line,) in table(db, "export_user", user)]
    other = user + "-again"
    db.execute("select memoir.import_user(%s, %s)", [other, lines])
    assert recalled(db, other, "Wer verkauft ein Haus?", p_limit=1) == [said]
    call(db, "erase_user", user)
    assert count_rows(db, "user_counters", "languages & 4 <> 0") >= 1
    set_settings(db, tail_items_max=500)


def test_another_configuration_finds_what_was_said_before(db: Db, user: str) -> None:
    said = "Unsere Nachbarn verkaufen ihre alten Häuser in Kassel"
    say(db, user, "s", SAID["english"], said, answer="👍")
    for config in ("german", "french", "simple", "english"):
        call(db, "set_user_settings", user, Jsonb({"text_search_config": config}))
        assert recalled(db, user, "Wer verkauft ein Haus?", p_limit=1) == [said], config
        assert recalled(db, user, "engines of boats?", p_limit=1) == [SAID["english"]], config


def test_model_says_what_it_reads(db: Db) -> None:
    said = ("How are you?", "Wie geht es dir?", "¿Cómo estás?", "Hur mår du i dag?", "Hm?")
    asked = list(zip(("english", "german", "spanish", "swedish", "simple"), said))
    assert [is_unread(db, *q) for q in asked] == [False, False, False, True, False]
    assert is_unread(db, "english", "Hur mår du i dag?"), "whatever the user's own language"
    call(db, "register_embedding_model", "both", "none", 4, p_languages=["en", "de"])
    call(db, "switch_embedding_model", "both")
    assert [is_unread(db, *q) for q in asked] == [False, False, True, True, False]
    call(db, "register_embedding_model", "all of them", "none", 4)
    call(db, "switch_embedding_model", "all of them")
    assert not any(is_unread(db, *q) for q in asked)


def test_turkish_database_answers_the_same(server_dsn: str, memoir_dsn: str) -> None:
    """There lower('I') is not 'i', in the whole database."""
    with connect(server_dsn) as db:
        if not db.execute("select count(*) from pg_collation where collname = 'tr-TR-x-icu'").fetchone()[0]:
            pytest.skip("this server is built without ICU")
    answers = []
    with database(server_dsn, "template template0 locale_provider icu icu_locale 'tr-TR' locale 'C.UTF-8'") as turkish:
        complete(turkish)
        add_python(turkish)
        for dsn in (memoir_dsn, turkish):
            with connect(dsn) as db:
                say(db, "locale", "s", "I live in IZMIR. I AM ALLERGIC TO SHELLFISH. MY FAVOURITE CITY IS IRKUTSK.")
                say(db, "locale", "s", "Sorry, I meant to say I live in ISTANBUL now, NOT IZMIR.")
                run_job(db, "extract")
                lockers = ("My locker is INDIGO.", "my locker is indigo.")
                locker = [remember(db, "locale", said)["outcome"] for said in lockers]
                asked = ("where is izmir", "IRKUTSK", "Which shellfish?", "İstanbul")
                found = [recalled(db, "locale", query) for query in asked]
                kept = table(db, "list_memories", "locale", columns="content, type, confidence")
                call(db, "set_setting", "relevance_floor", Jsonb(0.2))
                answers.append((locker, found, sorted(kept), one(db, "select lower('I')")))
    plain, turkish_answers = answers
    assert (plain[-1], turkish_answers[-1]) == ("i", "ı")
    assert plain[:-1] == turkish_answers[:-1] and plain[1][1] and len(plain[2]) >= 3
