"""The inspector in a real browser: every page by keyboard and by axe, light and dark, on a desk and in a hand, without
scripts."""

from collections.abc import Iterator

import psycopg
import pytest
from agents import Agent
from browser import chromium
from calls import call, persist, remembered, table
from node import MODULES
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of, title_contains
from selenium.webdriver.support.wait import WebDriverWait
from served import served

pytestmark = [pytest.mark.acceptance, pytest.mark.extended]
USER, SESSION = "ann", "kiln log"
PLAIN = (
    "sessions",
    "timeline",
    "page",
    "change/page",
    "ways",
    "doubts",
    "changes",
    "graph",
    "costs",
    "data",
    "change/add",
    "change/erase",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium("browser") as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(memoir_dsn: str) -> Iterator[dict[str, str]]:
    """Addresses of every kind of page, with something on them."""
    with psycopg.connect(memoir_dsn, autocommit=True) as db:
        persist(db, USER, "trip", "I am allergic to peanuts. We fly to Madeira on 9 April.", "Noted.")
        turn = persist(db, USER, "trip", "Actually we fly to Madeira on 12 April.", "Changed.")["message_ids"][0]
        call(db, "extract_session", USER, "trip")
        old = remembered(db, USER, "The dentist is Dr. Okafor", actor="person")
        memory = call(db, "correct", USER, old, "The dentist is Dr. Lind")["memory_id"]
        for number in range(10):
            persist(db, USER, SESSION, f"Firing {number}: " + "the upper shelf was cooler. " * 25, "Logged.")
            compiled = call(db, "context", USER, SESSION, "How did it go?", budget=1500)["compile_id"]
        call(db, "compact_session", USER, SESSION)
        piers = "\n".join(f"pier {n}, berth {n * 7}, depth {n % 9} m" for n in range(200))
        Agent(db, USER, "quay", "Where do they moor?").calls("Read", {"file_path": "piers.csv"}, piers)
        call(db, "memory_query", USER, "quay", "What is the depth at pier 77?")
        call(db, "capture_call", USER, SESSION, b"{}", status=200, latency_ms=5)
        call(db, "forget", USER, gone := remembered(db, USER, "The gate code is 4711"))
        mine = remembered(db, USER, "The car is green", slot="car", slot_value="green", actor="person")
        told = {"slot": "car", "slot_value": "red", "actor": "agent", "provenance": "fact"}
        rival = remembered(db, USER, "The car is red", **told)
        persist(db, USER, "cups", "Mrs. Okafor is very particular: the handle must fit two fingers.", "Noted.")
        persist(
            db,
            USER,
            "cups",
            "I was wrong about the handles, she means that three fingers must fit.",
            "I see.",
            usage={"prompt_tokens": 900, "cache_read_tokens": 600, "completion_tokens": 9, "latency_ms": 50},
        )
        call(db, "extract_session", USER, "cups")
        way = call(db, "learn_experience", USER, "fire the kiln", "Ask Ann first", success=True)["memory_id"]
        call(db, "learn_experience", USER, "fire the kiln", "Just do it", success=False, note="Too hot")
        change = str(table(db, "list_changes", USER, columns="change_id")[0][0])
        db.execute("call memoir.run_job('profiles')")
    with served(memoir_dsn, inspect_token="tok", user=USER) as (address, _):
        base = f"{address}/inspect"
        yield {
            "login": f"{base}/login",
            "users": base,
            "user": f"{base}/user?user={USER}",
            **{name: f"{base}/{name}?user={USER}" for name in PLAIN},
            "found": f"{base}/sessions?user={USER}&q=shelf",
            "billed": f"{base}/session?user={USER}&session=cups",
            "tied": f"{base}/graph?user={USER}&id={memory}",
            "settle": f"{base}/change/settle?user={USER}&id={mine}&other={rival}",
            "restore": f"{base}/change/restore?user={USER}&id={gone}",
            "undo": f"{base}/change/undo?user={USER}&id={change}",
            "forget-many": f"{base}/change/forget-many?user={USER}&id={memory}&id={mine}",
            "forget-about": f"{base}/change/forget-about?user={USER}&q=my+car",
            "session": f"{base}/session?user={USER}&session={SESSION.replace(' ', '+')}",
            **{kind: f"{base}/events?user={USER}&kind={kind}" for kind in ("fault", "move", "admission")},
            "objects": f"{base}/session?user={USER}&session=quay",
            "compile": f"{base}/compile?user={USER}&id={compiled}",
            "ask": f"{base}/ask?user={USER}&q=Who+is+the+dentist",
            "memories": f"{base}/memories?user={USER}&state=all",
            "search": f"{base}/memories?user={USER}&q=dentist",
            "memory": f"{base}/memory?user={USER}&id={memory}",
            "way": f"{base}/memory?user={USER}&id={way}",
            "turn": f"{base}/memory?user={USER}&id={turn}",
            "forget": f"{base}/change/forget?user={USER}&id={memory}",
            "correct": f"{base}/change/correct?user={USER}&id={memory}",
            "pin": f"{base}/change/pin?user={USER}&id={memory}",
            "health": f"{base}/health",
            "error": f"{base}/memory?user={USER}&id=seven",
        }


def log_in(browser: webdriver.Chrome, pages: dict[str, str]) -> None:
    browser.get(pages["login"])
    browser.delete_all_cookies()
    browser.get(pages["users"])
    assert browser.switch_to.active_element.get_attribute("id") == "token", "one may type at once"
    browser.switch_to.active_element.send_keys("tok", Keys.ENTER)
    WebDriverWait(browser, 30).until(title_contains("Users"))
    assert browser.current_url == pages["users"]


def look(browser: webdriver.Chrome, scheme: str, width: int) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.set_window_size(width, 900)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 500), ("dark", 500)])
def test_axe_finds_nothing_serious(browser: webdriver.Chrome, pages: dict[str, str], scheme: str, width: int) -> None:
    axe = (MODULES / "axe-core" / "axe.min.js").read_text("utf-8")
    log_in(browser, pages)
    look(browser, scheme, width)
    found = {}
    for name, address in pages.items():
        browser.get(address)
        browser.execute_script(axe)
        result = browser.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
        worst = [f"{v['id']}: {v['nodes'][0]['html']}" for v in result["violations"]]
        if worst:
            found[name] = worst
        assert result["passes"], name
        sideways = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        assert sideways <= 0, f"{name} scrolls sideways by {sideways}"
    assert not found
    assert not [entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]


def test_by_keyboard_from_the_first_page_to_a_correction(browser: webdriver.Chrome, pages: dict[str, str]) -> None:
    log_in(browser, pages)
    look(browser, "light", 1280)

    def press(text: str) -> None:
        """Tabs to the link or button with this text, which must show where it is, and presses it."""
        for _ in range(60):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            here = browser.switch_to.active_element
            if here.text.strip() == text:
                assert here.value_of_css_property("outline-style") != "none", "the focus is seen"
                here.send_keys(Keys.ENTER)
                WebDriverWait(browser, 30).until(staleness_of(here))
                return
        raise AssertionError(f"no {text!r} by Tab on {browser.current_url}")

    press(USER)
    press("Memories")
    press("The dentist is Dr. Lind")
    press("Correct…")
    for _ in range(20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.tag_name == "textarea":
            break
    browser.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    browser.switch_to.active_element.send_keys("The dentist is Dr. Moreau")
    press("Correct it")
    assert browser.find_element(By.TAG_NAME, "h1").text == "The dentist is Dr. Moreau"
    assert browser.find_element(By.CSS_SELECTOR, "[role=status]").text == "Corrected."


def test_no_page_needs_a_script(browser: webdriver.Chrome, pages: dict[str, str]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        log_in(browser, pages)
        browser.get(pages["session"])
        browser.find_element(By.XPATH, "//summary[contains(., 'figures')]").click()
        assert browser.find_element(By.CSS_SELECTOR, "details table").is_displayed()
        browser.get(pages["objects"])
        result = browser.find_element(By.XPATH, "//details[contains(summary, 'Result')]/p")
        assert not result.is_displayed(), "a result is folded"
        browser.find_element(By.XPATH, "//summary[contains(., 'Result')]").click()
        assert result.is_displayed()
        browser.get(pages["ask"])
        assert "Dr. Lind" in browser.page_source or "Dr. Moreau" in browser.page_source
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
