"""Servers of tests, which serve in a thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread

POLL_INTERVAL_S = 0.02


@contextmanager
def serve_in_thread(server: BaseServer) -> Iterator[None]:
    """Serve until the block ends or raises: the thread of a server that is only closed takes a processor for good."""
    thread = Thread(target=server.serve_forever, args=(POLL_INTERVAL_S,), daemon=True)
    with server:
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
