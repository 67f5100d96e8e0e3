"""Client of the process that decodes the images of requests: it can be ended in the middle of an image."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from embodied_rm.serve.memory_budget import GrowTo
from embodied_rm.serve.peer import PEER
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.request_queue import DEADLINE_MESSAGE
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import Frames

SCRIPT = Path(__file__).parent / "workers" / "decode_images.py"
DECODE_TIMEOUT_S = 10.0  # longest time for the images of one request; 170 megapixels of JPEG take 3 s
PIPE_BYTES = 1 << 20  # pipe capacity, where the system allows it


class ImageDecoder:
    """Decodes one request after the other. Many requests of a client, or of a machine, wait behind those of others."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self._turn, self._turns = asyncio.Lock(), WeakValueDictionary[tuple[str, ...], asyncio.Lock]()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process; start one if there is none."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            # Ctrl-C is for the service alone: it ends this process.
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pipesize=PIPE_BYTES,
                start_new_session=True,
            )
        return self._process

    def close(self) -> None:
        """End the process, also in the middle of an image."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._executor.submit(close_pipes, process)  # after a read of the thread, which ends now

    def shutdown(self) -> None:
        """End the process and the thread that reads from it."""
        self.close()
        self._executor.shutdown()

    async def decode(self, client_id: str, images: Sequence[memoryview], deadline: float, grow_to: GrowTo) -> Frames:
        """Decode P images of equal size. Returns uint8 [P, H, W, 3]. Raises `RequestError` for unsuitable images.

        `grow_to`: reserves memory for their pixels.
        """
        peer_turn, client_turn = (
            self._turns.setdefault(k, asyncio.Lock()) for k in ((PEER.get(),), (PEER.get(), client_id))
        )
        try:
            async with asyncio.timeout_at(deadline), client_turn, peer_turn, self._turn:
                return await self._decode_in_turn(images, grow_to)
        except TimeoutError:
            raise RequestError(ErrorCode.DEADLINE_EXCEEDED, DEADLINE_MESSAGE) from None

    async def _decode_in_turn(self, images: Sequence[memoryview], grow_to: GrowTo) -> Frames:
        run, process = asyncio.get_running_loop().run_in_executor, self.start()
        try:
            async with asyncio.timeout(DECODE_TIMEOUT_S):
                shape = await run(self._executor, send_images, process, images, self._limits)
                grow_to(math.prod(shape))
                frames = np.empty(shape, np.uint8)
                await run(self._executor, read_pixels, process, frames)
                return frames
        except RejectedImagesError:
            raise
        except BaseException as error:
            self.close()  # the rest of the reply is still in the pipe
            if isinstance(error, TimeoutError):
                message = f"frames: decoding the images takes more than {DECODE_TIMEOUT_S:g} s"
                raise RequestError(ErrorCode.PAYLOAD_TOO_LARGE, message) from None
            if isinstance(error, EOFError | BrokenPipeError):
                raise RequestError(ErrorCode.VALIDATION_ERROR, "frames: the images crash the decoder") from None
            raise


class RejectedImagesError(RequestError):
    """The process rejected the images. It is ready for the next ones."""


# In the thread


def send_images(process: subprocess.Popen[bytes], images: Sequence[memoryview], limits: ServeLimits) -> list[int]:
    """Send encoded images. Returns the shape [P, H, W, 3] of their pixels."""
    assert process.stdin is not None
    request = {
        "image_bytes": [len(image) for image in images],
        "max_image_side": limits.max_image_side,
        "max_bytes": limits.max_queue_bytes,
    }
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.writelines(images)
    process.stdin.flush()
    shape: list[int] = read_line(process)["shape"]
    return shape


def read_pixels(process: subprocess.Popen[bytes], frames: Frames) -> None:
    """Read the pixels of all images."""
    assert isinstance(process.stdout, io.BufferedReader)
    for image in frames:
        read_line(process)
        if process.stdout.readinto(image.data) < image.nbytes:
            raise EOFError


def read_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Read one line of the reply. Raises `RejectedImagesError`."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    value: dict[str, Any] = json.loads(line)
    if "error" in value:
        raise RejectedImagesError(ErrorCode[value["code"]], value["error"])
    return value


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
