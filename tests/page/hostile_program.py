"""An answer with scripts, pictures and odd links in it: it is shown, and does nothing."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.page.browser import browser, check_sight, equal, keep_picture


def main() -> None:
    with browser() as chromium:
        page = chromium.page()
        page.fill("#question", "<b>Hi</b>")
        page.press("#question", "Enter")
        expect(page.locator("#stop")).to_be_hidden()
        said = page.locator(".turn.assistant > .said")
        expect(said).to_contain_text("<script>window.ran = 1</script>")
        expect(said.locator("pre")).to_contain_text("</code></pre><script>")
        equal(page.evaluate("window.ran ?? null"), None)
        equal(page.locator(".turn.user .said b").count(), 0)
        equal(said.locator("script, img, iframe, b").count(), 0)
        links = said.locator("a").evaluate_all("links => links.map((link) => [link.href, link.rel, link.target])")
        equal(
            links,
            [
                ["https://example.org/a", "noopener noreferrer", "_blank"],
                ["https://example.org/b.png", "noopener noreferrer", "_blank"],
            ],
        )
        equal([said.locator(tag).count() for tag in ("table tr", "li", "strong", "h3", "blockquote")], [3, 3, 2, 1, 1])
        thoughts = page.locator(".turn.assistant details")
        equal(thoughts.get_attribute("open"), None)
        thoughts.locator("summary").click()
        expect(thoughts.locator(".said")).to_have_text("Thinking.")
        equal(
            page.evaluate(
                "getComputedStyle(document.querySelector('.turn.assistant > .said > p:last-child')).direction"
            ),
            "rtl",
        )
        check_sight(page)
        page.keyboard.press("Tab")
        equal(page.evaluate("document.activeElement.tagName !== 'BODY'"), True)
        page.emulate_media(color_scheme="dark")
        check_sight(page)
        keep_picture(page, "hostile")
        script = "fetch('https://example.org/').then(() => 'fetched', () => 'refused')"
        equal(page.evaluate(script), "refused")
        equal(
            [
                each
                for each in chromium.complaints
                if "Content Security Policy" not in each and "example.org" not in each
            ],
            [],
        )
        chromium.complaints.clear()


main()
