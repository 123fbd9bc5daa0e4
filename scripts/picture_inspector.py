"""Takes the pictures of docs/guides/inspector.md in Chromium.

    make demo                                          # the user ines, of the sample
    make gateway                                       # prints the address, with its token
    .local/venv/bin/python scripts/picture_inspector.py 'http://127.0.0.1:8787/inspect?token=...'

Needs what scripts/setup.sh --acceptance installs.
"""

import base64
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

from selenium import webdriver

HERE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "inspector"
PICTURES = {
    "overview": ("/user?user=ines", "light", 1120, 700),
    "changes": ("/changes?user=ines", "light", 1120, 500),
    "question": ("/ask?user=ines&q=Which+glaze+cracked%3F", "dark", 1120, 700),
    "narrow": ("/memories?user=ines", "dark", 420, 760),
}
"""By name: the page, the colours, width and height."""


def take_pictures(address: str) -> None:
    """Writes all of them, and prints their sizes."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))
    base = f"{urlsplit(address).scheme}://{urlsplit(address).netloc}/inspect"
    HERE.mkdir(exist_ok=True)
    try:
        driver.get(address)
        for name, (page, scheme, width, height) in PICTURES.items():
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.get(base + page)
            taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 60})
            written = (HERE / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))
            print(f"{name}.webp: {written:,} bytes")
    finally:
        driver.quit()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    take_pictures(sys.argv[1])
