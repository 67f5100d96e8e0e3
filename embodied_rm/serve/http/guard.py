"""Connections that send nothing, or headers without end: a server of web pages puts up with them, this one not."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from embodied_rm.serve.config import Limits
from embodied_rm.serve.http.incoming import KEY, Incoming

HEADERS = 32 << 10
"""Bytes of a request line and headers."""
MOST = 100
"""Headers of a request."""
TOO_LONG = b"431 Request Header Fields Too Large"


def guarded(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's protocol for a service with these limits."""

    class Guarded(HttpToolsProtocol):
        """Closes connections that are too many, and those whose headers are too slow or too long."""

        _reading = True
        """Whether the headers of a request are awaited."""
        _read = 0
        """Bytes since they are."""
        _timer: asyncio.TimerHandle | None = None
        _incoming: Incoming | None = None
        _too_long = False
        """Whether it is the headers' length that stopped the parser."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._await_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            if self._incoming is not None:
                self._incoming.break_off()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._reading:
                self._read += len(data)
                if self._timer is None:
                    self._await_headers()
            super().data_received(data)
            if self._reading and self._read > HEADERS and not self.transport.is_closing():
                self._refuse(TOO_LONG)

        def on_header(self, name: bytes, value: bytes) -> None:
            if len(self.headers) >= MOST:
                self._stop_parser("there are too many headers")  # it makes objects of no more
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._stop()
            self._reading = False
            if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEADERS:
                self._stop_parser("the headers are too long")
            super().on_headers_complete()
            told = [value for name, value in self.headers if name == b"content-length"]
            length = int(told[0]) if len(told) == 1 and told[0].isdigit() else 0
            self._incoming = Incoming(self.cycle, length) if 0 < length <= limits.body else None
            if self._incoming is not None:
                self.scope["state"][KEY] = self._incoming

        def _stop_parser(self, why: str) -> NoReturn:
            self._too_long = True
            raise ValueError(why)

        def send_400_response(self, msg: str) -> None:
            if self._too_long:
                self._refuse(TOO_LONG)
            else:
                super().send_400_response(msg)

        def on_message_complete(self) -> None:
            self._reading, self._read = True, 0
            super().on_message_complete()

        def on_body(self, body: bytes) -> None:
            if self.cycle.response_complete:
                return
            if self._incoming is not None and self._incoming.accepted:
                self._incoming.write(body)
            else:
                super().on_body(body)

        def _await_headers(self) -> None:
            self._timer = self.loop.call_later(limits.body_s, self._refuse, b"408 Request Timeout")

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self, status: bytes) -> None:
            self._stop()
            if not self.transport.is_closing():
                self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                self.transport.close()

    return Guarded
