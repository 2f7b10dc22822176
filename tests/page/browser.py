"""The page in Chromium: what it logs, what it fetches from elsewhere, and how its colours stand out are kept."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

URL = sys.argv[1]  # http://HOST:PORT
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DEADLINE_MS = 20_000
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA

# Relative luminance and contrast by WCAG 2.2, of every text that is shown on the paper behind it.
CONTRASTS = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const own = channels(getComputedStyle(each).backgroundColor);
      if (own.length < 4 || own[3] > 0) return own;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim()).length;
    if (!text || !element.checkVisibility() || element.disabled || element.tagName === "NOSCRIPT") continue;
    const [one, other] = [light(channels(getComputedStyle(element).color)), light(paper(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push([element.textContent.trim().slice(0, 40), ratio]);
  }
  return found;
}"""


class Browser:
    """Pages of one browser; `complaints` are all that they log as wrong or fetch from elsewhere."""

    def __init__(self, chromium: Any) -> None:
        self.complaints: list[str] = []
        self._chromium = chromium

    def page(self, width: int = 1280, height: int = 900, scheme: Any = "light") -> Page:
        """The page, open, in a window of that size."""
        size: Any = {"width": width, "height": height}
        page: Page = self._chromium.new_context(viewport=size, color_scheme=scheme).new_page()
        page.set_default_timeout(DEADLINE_MS)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._fetched(request.url))
        page.goto(URL)
        return page

    def _logged(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _fetched(self, url: str) -> None:
        if not url.startswith(f"{URL}/"):
            self.complaints.append(f"fetched {url}")


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium for the time of the block; SystemExit if a page had to complain."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            opened = Browser(chromium)
            yield opened
        finally:
            chromium.close()
    equal(opened.complaints, [])


def keep_picture(page: Page, name: str) -> None:
    """A picture of the whole page, where somebody wants pictures."""
    if folder := os.environ.get("LAYERLINE_PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def check_sight(page: Page) -> None:
    """All texts stand out, and nothing is wider than the window."""
    faint = [(text, round(ratio, 2)) for text, ratio in page.evaluate(CONTRASTS) if ratio < LEAST_CONTRAST]
    equal(faint, [])
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    equal(wide, 0)


def equal(found: object, wanted: object) -> None:
    """Ends the program if `found` is not what is wanted."""
    if found != wanted:
        raise SystemExit(f"found {found!r}, wanted {wanted!r}")
