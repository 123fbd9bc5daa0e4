"""A browser without a window, as scripts/setup.sh --acceptance installs it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver


@contextmanager
def chromium(*logs: str) -> Iterator[webdriver.Chrome]:
    """Starts one that keeps these logs whole."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    assert all(programs), "scripts/setup.sh --acceptance installs a browser"
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(programs[1])))
    try:
        yield driver
    finally:
        driver.quit()
