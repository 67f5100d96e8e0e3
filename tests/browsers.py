"""Chromium from Debian, its flags, and the fixtures of tests with pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """Return the path of chromium. Without it the test is skipped, or fails on CI."""
    path = shutil.which("chromium")
    if path is None:
        reason = "there is no chromium on the PATH; CONTRIBUTING.md says how to get it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """Start a headless browser."""
    path = find_chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield launched
        launched.close()


@contextmanager
def open_checked_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """Open an empty page, and check at the end that it logged no error."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    # The browser also logs rejected requests.
    assert [error for error in errors if not error.startswith("Failed to load resource: the server responded")] == []


def open_printed_page(page: Page, process: subprocess.Popen[str]) -> None:
    """Open the page of teleoperation whose address a command prints."""
    assert process.stdout is not None
    page.goto(next(match[1] for line in process.stdout if (match := re.search(r"open (http\S+) in a browser", line))))


def wait_for_step(page: Page, step: int) -> None:
    """Wait until the page of teleoperation shows a step of the first episode or take-over, or a later one."""
    deadline_s = time.monotonic() + 60
    while int(str(page.locator("body").get_attribute("data-step")).split("/")[1]) < step:
        assert time.monotonic() < deadline_s, f"the page does not come to step {step}"
        page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with launch_browser() as launched:
        yield launched


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page that must log no error."""
    with open_checked_page(browser) as checked_page:
        yield checked_page
