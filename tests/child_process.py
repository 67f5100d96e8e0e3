"""Programs of tests in processes of their own, which end with the block that uses them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def start_process(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a program and read what it prints; kill it if the block raises.

    `Popen` as a context manager would then wait for its end: a program that waits for a page holds the tests for ever.
    """
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
