"""Debian's browser, and how it is started."""

from __future__ import annotations

import os
import shutil

import pytest

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
