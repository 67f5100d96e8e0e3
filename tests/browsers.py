"""Debian's browser, how it is started, and the fixtures of tests that look at pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
FLAGS += ("--disable-component-update", "--disable-sync")


def chromium() -> str:
    """Where it is. Where it is not, the tests that need it are left out; where every change must pass, they fail."""
    found = shutil.which("chromium")
    if found is None:
        reason = "there is no chromium on the PATH; CONTRIBUTING.md says how to get it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def started() -> Iterator[Browser]:
    """A real one, without a window."""
    path = chromium()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield running
        running.close()


@contextmanager
def watched(browser: Browser, **options: Any) -> Iterator[Page]:
    """An empty page, which must not complain of anything until the end."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    shown = context.new_page()
    complaints: list[str] = []
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield shown
    context.close()
    # That a request was refused is told by the browser too.
    assert [told for told in complaints if not told.startswith("Failed to load resource: the server responded")] == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real one, without a window."""
    with started() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page, which must not complain of anything until the end."""
    with watched(browser) as shown:
        yield shown
