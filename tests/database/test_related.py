"""What memories are related to comes with them: two steps, by an arm of its own."""

from calls import call, table

DEPLOY = "The deploy of the billing service failed on 3 March"
CERTIFICATE = "The TLS certificate of the gateway had expired"
RENEWAL = "Renewals are Ines' duty since January"
ELSEWHERE = "The canteen serves soup on Fridays"


def remembered(db, user):
    deploy, certificate, renewal, elsewhere = (
        call(db, "remember", user, text)["memory_id"] for text in (DEPLOY, CERTIFICATE, RENEWAL, ELSEWHERE)
    )
    call(db, "relate", user, deploy, "caused_by", certificate)
    call(db, "relate", user, renewal, "elaborates", certificate)
    return deploy, certificate, renewal, elsewhere


def shown_arms(db, user, **asked):
    rows = table(
        db, "explain_context", user, "s", "Why did the billing deploy fail?", columns="id, arms, included", **asked
    )
    return {str(row[0]): row[1] for row in rows if row[2]}


def test_what_a_match_depends_on_comes_along(db, user):
    deploy, certificate, renewal, elsewhere = remembered(db, user)
    arms = shown_arms(db, user)
    assert "words" in arms[str(deploy)]
    assert arms[str(certificate)] == ["related"] and arms[str(renewal)] == ["related"]
    assert str(elsewhere) not in arms
    call(db, "set_user_settings", user, {"related_hops": 1})
    assert str(certificate) in shown_arms(db, user) and str(renewal) not in shown_arms(db, user)
    call(db, "set_user_settings", user, {"related_hops": 0})
    assert set(shown_arms(db, user)) == {str(deploy)}


def test_recall_names_the_arm_and_the_nearer_comes_first(db, user):
    deploy, certificate, renewal, _ = remembered(db, user)
    found = table(db, "recall", user, "billing deploy", columns="id, matched_by")
    assert [str(row[0]) for row in found] == [deploy, certificate, renewal]
    assert [row[1] for row in found][1:] == [["related"], ["related"]]


def test_what_is_forgotten_does_not_come_along(db, user):
    _, certificate, *_ = remembered(db, user)
    call(db, "forget", user, certificate)
    assert str(certificate) not in shown_arms(db, user)
