"""What memories are related to comes with them: two steps, by an arm of its own."""

from calls import Db, call, remembered, table


def test_dependencies_of_a_match_come_along(db: Db, user: str) -> None:
    deploy = remembered(db, user, "The deploy of the billing service failed on 3 March")
    certificate = remembered(db, user, "The TLS certificate of the gateway had expired")
    renewal = remembered(db, user, "Renewals are Ines' duty since January")
    remembered(db, user, "The canteen serves soup on Fridays")
    call(db, "relate", user, deploy, "caused_by", certificate)
    call(db, "relate", user, renewal, "elaborates", certificate)

    def arms() -> dict[str, list[str]]:
        asked = "Why did the billing deploy fail?"
        rows = table(db, "explain_context", user, "s", asked, columns="id::text, arms, included")
        return {item: arms for item, arms, is_shown in rows if is_shown}

    assert arms() == {deploy: arms()[deploy], certificate: ["related"], renewal: ["related"]}
    # Recall names the arm, and the nearer comes first.
    found = table(db, "recall", user, "billing deploy", columns="id::text, matched_by")
    assert [item for item, _ in found] == [deploy, certificate, renewal] and found[1][1] == found[2][1] == ["related"]
    for hops, items in ((1, {deploy, certificate}), (0, {deploy})):
        call(db, "set_user_settings", user, {"related_hops": hops})
        assert set(arms()) == items
    call(db, "set_user_settings", user, {"related_hops": None})
    call(db, "forget", user, certificate)
    assert certificate not in arms()
