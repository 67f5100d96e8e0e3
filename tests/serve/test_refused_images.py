"""Invalid and oversized images are rejected with the documented status before decoding."""

from __future__ import annotations

import io
import subprocess
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hostile_images import jpeg_with_junk, jpeg_with_scans, jpeg_with_segments, png_with_chunks
from known_models import HashModel
from PIL import Image
from png_files import build_png
from services import serving
from strict import VALID_HEADER, post

from embodied_rm.serve import image_decoder
from embodied_rm.serve.service_config import ServeConfig, ServeLimits


def png_with_size(width: int, height: int) -> bytes:
    """Return a PNG file of a few hundred bytes that declares this size."""
    return build_png(width, height, (b"IDAT", zlib.compress(bytes(999))))


def encode_image(image_format: str, size: tuple[int, int] = (8, 8), mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 1 if mode in ("L", "P", "I;16") else (1, 2, 3)).save(file, image_format, **options)
    return file.getvalue()


JPEG, PNG = encode_image("JPEG"), encode_image("PNG")


@pytest.mark.parametrize(
    ("image", "status"),
    [
        (png_with_size(12_000, 12_000), 413),
        (png_with_size(40_000, 40_000), 422),
        (png_with_size(65, 8), 413),
        (png_with_size(0, 8), 422),
        (png_with_size(64, 64), 422),
        (JPEG[:20], 422),
        (JPEG[: len(JPEG) // 2], 422),
        (PNG[:45], 422),
        (PNG[:33] + bytes(40), 422),
        (encode_image("GIF"), 422),
        (encode_image("BMP"), 422),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422),
        (b"\x89PNG\r\n\x1a\n", 422),
        (b"\xff\xd8\xff", 422),
        (b"\x80\x04\x95canary", 422),
        (encode_image("PNG", (9, 8)), 422),
        (jpeg_with_scans(1000), 413),
        (jpeg_with_segments(20_000), 413),
        (png_with_chunks(12_000), 413),
    ],
)
def test_invalid_image_is_rejected(url: str, image: bytes, status: int) -> None:
    files = [PNG, PNG, PNG, image]
    header = {**VALID_HEADER, "frames": {"shape": [2, 2], "image_bytes": [len(file) for file in files]}}
    response = post(url, header, b"".join(files))
    assert response.status_code == status and "frames" in response.json()["error"], response.text


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_other_color_modes_are_converted_to_rgb(url: str, mode: str) -> None:
    image = encode_image("JPEG" if mode == "CMYK" else "PNG", mode="L" if mode == "L" else "RGB")
    if mode in ("RGBA", "P"):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (1, 2, 3)).convert(mode).save(file, "PNG")
        image = file.getvalue()
    header = {**VALID_HEADER, "client_id": mode, "frames": {"shape": [2, 2], "image_bytes": [len(image)] * 4}}
    assert post(url, header, image * 4).status_code == 200


def post_images(url: str, image: bytes, client_id: str, num_images: int = 1) -> httpx.Response:
    """Send one image several times, as the views of an episode."""
    frames = {"shape": [1, num_images], "image_bytes": [len(image)] * num_images}
    header = {**VALID_HEADER, "client_id": client_id, "env_ids": [0], "episode_ids": [0], "instructions": ["lift it"]}
    views = [f"view{index}" for index in range(num_images)]
    return post(url, {**header, "views": views, "frames": frames}, image * num_images)


def test_images_with_too_many_pixels_in_total_are_rejected() -> None:
    config = ServeConfig(port=0, limits=ServeLimits(max_queue_mb=2, max_body_mb=2))
    with serving(HashModel(), config=config) as url:
        response = post_images(url, encode_image("PNG", (512, 512)), "a", num_images=3)
        assert response.status_code == 413 and "2359296 bytes of pixels" in response.text
        assert post_images(url, encode_image("PNG", (512, 512)), "a", num_images=2).status_code == 200


def test_slow_images_are_given_up_and_other_clients_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_decoder, "DECODE_TIMEOUT_S", 1.5)
    slow, answered = jpeg_with_junk(8_000_000), list[str]()

    def send(url: str, image: bytes, client_id: str) -> httpx.Response:
        response = post_images(url, image, client_id)
        answered.append(client_id)
        return response

    with serving(HashModel()) as url, ThreadPoolExecutor(3) as threads:
        responses = [threads.submit(send, url, slow, "slow") for _ in range(2)]
        while httpx.get(f"{url}/metrics").text.count('accepted_requests_total{endpoint="reset"} 2.0') == 0:
            time.sleep(0.01)
        assert threads.submit(send, url, PNG, "good").result().status_code == 200
        assert answered == ["slow", "good"]
        for response in responses:
            assert response.result().status_code == 413 and "more than 1.5 s" in response.result().text


def test_shutdown_ends_the_decoding_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = list[subprocess.Popen[bytes]]()
    popen = subprocess.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(popen(*args, **options))
        return processes[-1]

    monkeypatch.setattr(image_decoder.subprocess, "Popen", start)
    monkeypatch.setattr(image_decoder, "DECODE_TIMEOUT_S", 60.0)
    with serving(HashModel(), config=ServeConfig(port=0, drain_timeout_s=1)) as url:
        thread = threading.Thread(target=lambda: httpx_error_or_response(url, jpeg_with_junk(40_000_000)))
        thread.start()
        time.sleep(1)
    assert len(processes) == 1 and processes[0].poll() is not None
    thread.join()


def httpx_error_or_response(url: str, image: bytes) -> httpx.Response | None:
    try:
        return post_images(url, image, "slow")
    except httpx.HTTPError:
        return None


def test_crash_of_the_decoder_rejects_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill_and_send(process: subprocess.Popen[bytes], *request: Any) -> list[int]:
        process.kill()
        process.wait()
        return send_images(process, *request)

    send_images = image_decoder.send_images
    with serving(HashModel()) as url:
        monkeypatch.setattr(image_decoder, "send_images", kill_and_send)
        response = post_images(url, PNG, "a")
        assert response.status_code == 422 and "crash" in response.text
        monkeypatch.setattr(image_decoder, "send_images", send_images)
        assert post_images(url, PNG, "a").status_code == 200
