"""The documentation site: it builds without a warning, its own checks can fail, and its search works from a disk."""

import json
import sys
from pathlib import Path

import build_site
import pytest
from browser import chromium
from commands import output_of
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

LOADED = {
    '<script src="https://example.com/x.js"></script>': "https://example.com/x.js",
    '<link rel="preconnect" href="//example.com">': "//example.com",
    '<script src="x.js"></script> <a href="https://example.com">y</a>': None,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as make docs does."""
    folder = tmp_path_factory.mktemp("site")
    output_of([sys.executable, build_site.__file__, folder])
    return folder


def test_site_has_every_page(site: Path) -> None:
    """Pages of docs/ are in the navigation and in the index of the search; linked sources are shown."""
    home = (site / "index.html").read_text()
    for section in (
        "start/tutorial",
        "start/notebook",
        "guides/recipes",
        "explain/design",
        "reference",
        "examples/index",
    ):
        assert f'href="{section}.html' in home
    assert "errors.sql" in (site / "sql/contents.sql.html").read_text()
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert "sql/contents.sql.html" not in [entry["location"] for entry in index] and len(index) > 300


@pytest.mark.parametrize(("body", "host"), LOADED.items())
def test_site_check_finds_other_hosts(body: str, host: str | None, tmp_path: Path) -> None:
    """What a page would load from another host; a link is no request."""
    (tmp_path / "index.html").write_text(f"<article>{body}</article>")
    wanted = [f"index.html: is loaded from another host: {host}"] if host else []
    assert list(build_site.loaded_from_elsewhere(tmp_path)) == wanted


def test_site_check_finds_lost_list(tmp_path: Path) -> None:
    """A page whose list became a paragraph."""
    shown = "<article><h1>x</h1><p>- one - two</p></article>"
    (tmp_path / "guides").mkdir()
    (tmp_path / "guides/scale.html").write_text(shown)
    assert any(line.startswith("docs/guides/scale.md: ") for line in build_site.lost_elements(tmp_path))


@pytest.mark.acceptance
@pytest.mark.extended
def test_site_searches_from_disk(site: Path) -> None:
    """Opened from a disk, the search finds pages, and no page asks another host for anything."""
    with chromium("performance", "browser") as browser:
        for page in ("reference.html", "guides/inspector.html", "start/notebook.html", "index.html"):
            browser.get((site / page).as_uri())
        browser.find_element(By.TAG_NAME, "body").send_keys("f")
        WebDriverWait(browser, 20).until(lambda _: browser.switch_to.active_element.tag_name == "input")
        browser.switch_to.active_element.send_keys("tombstone")
        found = WebDriverWait(browser, 20).until(
            lambda _: browser.find_elements(By.CSS_SELECTOR, ".md-search-result__article h1")
        )
        assert "Memories: states, corrections, conflicts" in [title.text for title in found]
        assert browser.get_log("browser") == []
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        asked = {
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        }
        assert len(asked) > 8 and {url.split(":")[0] for url in asked} <= {"file", "data"}
