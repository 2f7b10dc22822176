"""The page of a real cluster: machines, chat, stop, another visit, and a node that is killed when this says so."""

from __future__ import annotations

import sys
import time

from playwright.sync_api import Page, expect

from tests.page.browser import browser, check_sight, equal, keep_picture

LOST = sys.argv[2]  # the node that will be killed
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
LONG = "Write a long story of a dog and a cat, with ten chapters."


def settle(page: Page) -> None:
    """Answers without chance, from the model's usual instructions."""
    page.click("summary:has-text('System prompt')")
    page.fill("[name=system]", "You are a helpful assistant.")
    page.fill("[name=temperature]", "0")
    page.press("[name=temperature]", "Tab")


def ask(page: Page, text: str) -> None:
    page.fill("#question", text)
    page.press("#question", "Enter")


def chats(page: Page) -> None:
    settle(page)
    ask(page, QUESTION)
    expect(page.locator(".turn.assistant > .said")).to_have_text(ANSWER)
    expect(page.locator("#stop")).to_be_hidden()
    page.click("text=Ask again")
    expect(page.locator(".turn.assistant > .said")).to_have_text(ANSWER)
    expect(page.locator("#stop")).to_be_hidden()  # an answer is kept when it has ended
    page.reload()
    expect(page.locator(".turn.assistant > .said")).to_have_text(ANSWER)
    equal(page.input_value("[name=temperature]"), "0")
    page.click(".turn.user >> text=Edit")
    page.fill(".turn.user textarea", f"{QUESTION} ")
    page.click(".turn.user >> text=Ask again")
    expect(page.locator(".turn.assistant > .said")).not_to_be_empty()
    expect(page.locator("#stop")).to_be_hidden()


def stops(page: Page) -> None:
    page.click("#new")
    ask(page, LONG)
    page.click("#request-rows button")
    expect(page.locator(".turn .bad:visible")).to_contain_text("stopped at the coordinator")
    expect(page.locator("#no-requests")).to_be_visible()
    page.click("#new")
    ask(page, LONG)
    expect(page.locator("#request-rows tr")).to_have_count(1)
    page.evaluate("scrollTo(0, 0)")
    keep_picture(page, "page-1280")
    page.click("#stop")
    expect(page.locator("#no-requests")).to_be_visible()
    expect(page.locator("#stop")).to_be_hidden()
    equal(page.locator(".turn .bad:visible").count(), 0)


def main() -> None:
    with browser() as chromium:
        page = chromium.page()
        expect(page.locator("#pipeline .machine")).to_have_count(2)
        expect(page.locator("#pipeline .link")).to_have_count(3)
        expect(page.locator("#served")).to_contain_text("serving")
        chats(page)
        stops(page)
        expect(page.locator("#shares .plot")).to_have_count(2)
        check_sight(page)
        phone = chromium.page(360, 740, "dark")
        expect(phone.locator("#pipeline .machine")).to_have_count(2)
        check_sight(phone)
        ask(phone, QUESTION)
        expect(phone.locator(".turn.assistant > .said")).not_to_be_empty()
        keep_picture(phone, "page-360")
        print("Kill it now.", flush=True)
        page.wait_for_selector(f".machine.lost[data-node='{LOST}']")
        print(f"Lost at {time.time()}.", flush=True)
        expect(page.locator(".machine.lost")).to_contain_text("lost")


main()
