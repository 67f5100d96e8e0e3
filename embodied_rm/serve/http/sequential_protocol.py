"""uvicorn's HTTP protocol for one request at a time: the next one is parsed when the previous one is answered."""

from typing import Any

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_END = b"\r\n\r\n"  # ends headers, and a body in chunks


class ReadControl(FlowControl):
    """Flow control of a connection. While received bytes are not parsed, nothing else is read."""

    has_unparsed = False

    def resume_reading(self) -> None:
        """Read on, unless received bytes are not parsed."""
        if not self.has_unparsed:
            super().resume_reading()


class SequentialProtocol(HttpToolsProtocol):
    """Keeps the bytes of pipelined requests unparsed, and reads no more, until their turn.

    uvicorn parses whatever it receives. A read of 256 KB may hold 10,000 requests, each with objects of 4 KB. Upgrades
    to another protocol are ignored (RFC 9110, 7.8).
    """

    _awaiting_headers = True
    _num_body_bytes_left = 0  # rest of a body with declared length
    _unparsed = b""
    _num_parsed = 0  # bytes at the start of `_unparsed` that are parsed
    flow: ReadControl

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = ReadControl(transport)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unparsed, self._num_parsed = self._unparsed[self._num_parsed :] + data, 0
        self._parse()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._num_parsed < len(self._unparsed):
            self._unset_keepalive_if_required()
            self._parse()

    @property
    def is_idle(self) -> bool:
        """Whether no request is received or answered."""
        return self._awaiting_headers and (self.cycle is None or self.cycle.response_complete)

    def parse_part(self, part: bytes) -> None:
        """Parse bytes with the end of at most one request."""
        try:
            self.parser.feed_data(part)
        except HttpParserUpgrade as upgrade:
            self.parse_part(self._head_without_upgrade() + part[upgrade.args[0] :])
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        if self._is_upgrade:
            return
        self._awaiting_headers = False
        super().on_headers_complete()
        lengths = [value for name, value in self.headers if name == b"content-length"]
        self._num_body_bytes_left = int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else 0

    def on_body(self, body: bytes) -> None:
        self._num_body_bytes_left -= len(body)
        if not self.cycle.response_complete:
            self.take_body(body)

    def take_body(self, body: bytes) -> None:
        """Pass a part of the body to the request."""
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_upgrade:
            self._awaiting_headers, self._num_body_bytes_left = True, 0
            super().on_message_complete()

    @property
    def _is_upgrade(self) -> bool:
        return self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)

    def _parse(self) -> None:
        while self._num_parsed < len(self._unparsed):
            is_answering = self._awaiting_headers and not self.is_idle
            if is_answering or self.transport.is_closing():
                break
            start, self._num_parsed = self._num_parsed, self._part_end()
            self.parse_part(self._unparsed[start : self._num_parsed])
        was_held, self.flow.has_unparsed = self.flow.has_unparsed, self._num_parsed < len(self._unparsed)
        if self.flow.has_unparsed:
            self.flow.pause_reading()
        elif was_held:
            self.flow.resume_reading()

    def _part_end(self) -> int:
        """Return the end of the bytes to parse next: of the body, or after the next empty line."""
        if self._num_body_bytes_left > 0:
            return min(self._num_parsed + self._num_body_bytes_left, len(self._unparsed))
        end = self._unparsed.find(HEADERS_END, self._num_parsed)
        return len(self._unparsed) if end < 0 else end + len(HEADERS_END)

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        return b"".join([*head, b"\r\n"])
