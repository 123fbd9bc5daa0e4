"""A text's language is decided once; its words are found in whatever languages the user writes."""

from __future__ import annotations

import pytest
from calls import Db, call, one, persist, recalled, remember, run_job, say, set_settings, table
from psycopg.types.json import Jsonb
from servers import add_python, complete, connect, database

SAID = {
    "english": "We were told that the boat needs a new engine before May.",
    "german": "Wir haben gestern mit dem Vermieter über die Heizung gesprochen.",
    "spanish": "Mi hermana vive en Sevilla y trabaja de enfermera.",
    "french": "Nous avons réservé une maison près de la mer pour les vacances.",
    "portuguese": "O meu irmão não come carne e mora em Coimbra.",
    "italian": "Mia figlia suona il violino e studia anche il pianoforte.",
    "dutch": "Mijn broer heeft een winkel waar hij fietsen verkoopt.",
    "swedish": "Jag bor inte här längre, men min bror har ett hus.",
    "turkish": "Kardeşim çok güzel resim yapıyor ve bir galeri açtı.",
    "polish": "Moja siostra mieszka w Gdańsku i pracuje jako lekarka.",
    "vietnamese": "Em gái tôi đang học đại học ở Đà Nẵng.",
    "russian": "Мой брат живёт в Туле и работает врачом.",
    "ukrainian": "Мій брат живе у Львові і працює лікарем.",
    "greek": "Ο αδερφός μου μένει στην Πάτρα.",
    "arabic": "أخي يعمل طبيبا في بيروت",
    "persian": "برادر من در شیراز زندگی می‌کند",
    "hebrew": "אחי גר בחיפה ועובד כרופא",
    "hindi": "मेरा भाई पटना में डॉक्टर है।",
    "japanese": "弟は京都で医者をしています。",
    "chinese": "我弟弟在西安当医生。",
    "korean": "제 동생은 대구에서 의사로 일해요.",
    "thai": "น้องชายของฉันเป็นหมอที่ขอนแก่น",
}


def language(db: Db, text: str) -> str | None:
    name = "select (select name from _memoir.data_languages() where number::integer = _memoir.text_language(%s))"
    return one(db, name, text)


@pytest.mark.parametrize("name", SAID)
def test_text_tells_its_language(db: Db, name: str) -> None:
    assert language(db, SAID[name]) == name
    assert language(db, SAID[name] + " `parseInvoiceHeader`") == name
    rules = ("english", "german", "spanish", "french", "portuguese", "italian")
    assert one(db, "select _memoir.spoken_language(%s)", SAID[name]) == (name if name in rules else "simple")


def test_short_text_has_the_language_of_the_setting(db: Db, user: str) -> None:
    assert language(db, "Rocky!") is None and language(db, "") is None and language(db, "12:30") is None
    decided = "select _memoir.item_language(%s, %s::regconfig)"
    assert one(db, decided, "Rocky!", "english") == 1 and one(db, decided, "Rocky!", "german") == 2
    # A configuration that is none of a language's is meant for all texts.
    assert one(db, decided, SAID["german"], "simple") == 0 and one(db, decided, SAID["german"], "english") == 2


def test_decision_is_stored_with_each_text(db: Db, user: str) -> None:
    for number, text in enumerate(SAID.values()):
        persist(db, user, f"s{number}", text)
    remember(db, user, SAID["german"] + " Wir warten noch.")
    stored = db.execute(
        """select (select name from _memoir.data_languages() where number::integer = i.language)
           from _memoir.search_items i join _memoir.users u using (user_id)
           where u.external_id = %s order by item_no""",
        [user],
    ).fetchall()
    assert [name for (name,) in stored] == [*SAID, "german"]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        # Inflected words.
        ("Unsere Nachbarn verkaufen ihre alten Häuser in Kassel", "Wer verkauft ein Haus?"),
        ("Mes cousins habitent maintenant à Lyon, ils adorent", "Où habite ma cousine ?"),
        ("Мы посадили яблони за домом", "Что посадил я, яблоню?"),
        ("Moja sąsiadka hoduje kanarki", "Kto hoduje kanarka?"),
        ("Komşum kanaryaları çok seviyor", "Kim kanarya seviyor?"),
        ("השכנה שלי מגדלת תוכים", "מי מגדל את התוכים?"),
        # A topic, with no word in common.
        ("Unser Wellensittich frisst nur Hirse", "Welches Haustier haben wir?"),
        ("Soy fontanera desde hace once años", "¿Cuál es mi oficio?"),
        ("Les arachides me donnent des plaques", "Quels aliments dois-je éviter ?"),
        ("Жена играет на виолончели", "Какой дома музыкальный инструмент?"),
        ("شقيقي يلعب التنس كل مساء", "ما الرياضة التي نمارسها؟"),
        ("हमने एक खरगोश रखा है", "घर में कौन सा जानवर है?"),
        ("我在北京做会计", "我的职业是什么？"),
        ("여동생이 첼로를 켜요", "무슨 악기예요?"),
        ("ผมเป็นเภสัชกร", "อาชีพของผมคืออะไร"),
        # Identifiers, whole and by their parts.
        ("It fails in parseInvoiceHeader, line three", "where is the invoice header parsed?"),
        ("It fails in parseInvoiceHeader, line three", "parseInvoiceHeader"),
        ("Then TOKEN_EXPIRED came back", "the token had expired"),
        ("Look at src/widgets/canvas_renderer.py first", "which renderer file?"),
        ("We saw an HTTPServerError at noon", "error of the server"),
    ],
)
def test_words_find_forms_topics_and_parts(db: Db, user: str, said: str, asked: str) -> None:
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
    assert one(db, "select count(*) from _memoir.user_counters c where languages & 4 <> 0") >= 1
    set_settings(db, tail_items_max=500)


def test_another_configuration_finds_what_was_said_before(db: Db, user: str) -> None:
    said = "Unsere Nachbarn verkaufen ihre alten Häuser in Kassel"
    say(db, user, "s", SAID["english"], said, answer="👍")
    for config in ("german", "french", "simple", "english"):
        call(db, "set_user_settings", user, Jsonb({"text_search_config": config}))
        assert recalled(db, user, "Wer verkauft ein Haus?", p_limit=1) == [said], config
        assert recalled(db, user, "engines of boats?", p_limit=1) == [SAID["english"]], config


def test_model_says_what_it_reads(db: Db) -> None:
    unread = """select (_memoir.question(gen_random_uuid(), null, config || jsonb_build_object('text_search_config', %s::text), %s,
        '{}', null, null)).unread from _memoir.settings_merged"""
    asked = (
        ("english", "How are you?"),
        ("german", "Wie geht es dir?"),
        ("spanish", "¿Cómo estás?"),
        ("simple", "Hm?"),
    )
    assert [one(db, unread, *q) for q in asked] == [False, True, True, False]
    call(db, "register_embedding_model", "both", "none", 4, p_languages=["en", "de"])
    call(db, "switch_embedding_model", "both")
    assert [one(db, unread, *q) for q in asked] == [False, False, True, False]
    call(db, "register_embedding_model", "all of them", "none", 4)
    call(db, "switch_embedding_model", "all of them")
    assert not any(one(db, unread, *q) for q in asked)


def test_turkish_database_answers_the_same(server_dsn: str, memoir_dsn: str) -> None:
    """There lower('I') is not 'i', in the whole database."""
    answers = []
    with database(server_dsn, "template template0 locale_provider icu icu_locale 'tr-TR' locale 'C.UTF-8'") as turkish:
        complete(turkish)
        add_python(turkish)
        for dsn in (memoir_dsn, turkish):
            with connect(dsn) as db:
                say(db, "locale", "s", "I live in IZMIR. I AM ALLERGIC TO SHELLFISH. MY FAVOURITE CITY IS IRKUTSK.")
                say(db, "locale", "s", "Sorry, I meant to say I live in ISTANBUL now, NOT IZMIR.")
                run_job(db, "extract")
                locker = [
                    remember(db, "locale", said)["outcome"] for said in ("My locker is INDIGO.", "my locker is indigo.")
                ]
                found = [
                    [content for (content,) in table(db, "recall", "locale", query, columns="content")]
                    for query in ("where is izmir", "IRKUTSK", "Which shellfish?", "İstanbul")
                ]
                kept = table(db, "list_memories", "locale", columns="content, type, confidence")
                call(db, "set_setting", "relevance_floor", Jsonb(0.2))
                answers.append((locker, found, sorted(kept), one(db, "select lower('I')")))
    plain, turkish_answers = answers
    assert (plain[-1], turkish_answers[-1]) == ("i", "ı")
    assert plain[:-1] == turkish_answers[:-1] and plain[1][1] and len(plain[2]) >= 3
