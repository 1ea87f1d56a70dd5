"""Takes the pictures of the lab that the pages show: `python docs/lab.py` (needs playwright and a browser)."""

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
SERVER = [sys.executable, "-c", "from linnet.cli import main; main()", "lab", "--no-browser"]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DONE = "document.documentElement.dataset.complete === document.documentElement.dataset.requested"
PICTURES = {  # an address, the page's height, and how it is lit
    "network": ("network?depth=3&init=balanced&scale=0.05&lr=0.03&steps=1000", 1000, "light"),
    "edge": ("edge?kappa=2.9", 1010, "light"),
    "rich": ("rich?time=57", 1010, "light"),
    "dark": ("phase", 880, "dark"),
}


def main() -> None:
    """Opens each address, waits until all of it is seen, and keeps what a screen of that height shows."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with subprocess.Popen(SERVER, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        address = server.stdout.readline().split()[4].rstrip("/")
        chromium = playwright.chromium.launch(executable_path=browser, args=QUIET)
        for name, (path, height, scheme) in PICTURES.items():
            context = chromium.new_context(viewport={"width": 1280, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(f"{address}/{path}")
            page.wait_for_selector("form.controls", state="attached")
            page.wait_for_function(DONE, polling=50)
            page.screenshot(path=IMAGES / f"lab-{name}.png")
            context.close()
        chromium.close()
        server.terminate()


if __name__ == "__main__":
    main()
