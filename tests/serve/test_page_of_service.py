"""Web pages of the service in a real browser: they show the model's predictions for the same videos."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browsers import open_checked_page
from known_models import HashModel
from playwright.sync_api import Browser, Error, Page, expect
from read_video import read_frames
from services import LIFT, frames_by_view, random_videos, serving

from embodied_rm.client.reward_client import RewardClient
from embodied_rm.data.video.files import write_video
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.serve.service_config import ServeConfig, ServeLimits
from embodied_rm.types import Episode, Frames

expect.set_options(timeout=20_000)  # a browser is slow while other tests run

FPS, NUM_FRAMES, SCORE_FPS = 10, 24, 5
TOLERANCE = 0.02
"""Largest difference of predictions, as a browser decodes slightly differently than libav."""
VIDEO_FILES = {"front": "take_3_front.mp4", "wrist": "Wrist camera.mp4", "side": "3.mp4"}
"""View -> video file. The page guesses the view from the name; the last one is the remaining view."""


def block_frames(view: int) -> Frames:
    """Return uint8 [T, H, W, 3]: flat color blocks, one of which moves.

    They are four times the model's input size: decoders differ in chroma at edges, which downscaling averages out.
    """
    frames = np.full((NUM_FRAMES, 256, 256, 3), (205, 190, 165), np.uint8)
    frames[:, 128:] = (90 + 20 * view, 100, 120)
    for t in range(NUM_FRAMES):
        frames[t, 64:128, 8 * t : 8 * t + 64] = (210, 40, 40)
    return frames


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with three videos of one episode."""
    path = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(VIDEO_FILES.values()):
        write_video(path / name, block_frames(number), FPS)
    return path


@pytest.fixture(scope="module")
def net() -> Any:
    """The bundled model."""
    return load_progress_net(BUNDLED_CHECKPOINT)


@pytest.fixture(scope="module")
def url(net: Any) -> Iterator[str]:
    """URL of a service of the bundled model."""
    with serving(load_progress_net(BUNDLED_CHECKPOINT), version="box" + "0" * 61) as address:
        yield address


def open_page(page: Page, url: str) -> Page:
    page.goto(url)
    page.locator("body.ready").wait_for()
    return page


def choose_files(page: Page, *files: Path) -> None:
    """Choose files and wait until the page shows them."""
    num_before = page.locator("figure").count()
    page.set_input_files("#files", list(files))
    expect(page.locator("figure")).to_have_count(num_before + len(files))


def score(page: Page, instruction: str = LIFT, fps: float = SCORE_FPS, state: str = "done") -> None:
    """Score the videos and wait for the final state of the page."""
    page.fill("#instruction", instruction)
    page.fill("#fps", str(fps))
    page.click("#score")
    expect(page.locator("body")).to_have_attribute("data-state", state, timeout=60_000)


def save_curve(page: Page, index: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Save a curve of the page. Returns its path and content."""
    with page.expect_download() as download:
        page.locator("#curves .save").nth(index).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path, json.loads(path.read_text())


def row_numbers(page: Page, row: int) -> list[str]:
    return page.locator("#curves tbody tr").nth(row).locator(".number").all_inner_texts()


def chart_png(page: Page) -> bytes:
    return page.locator("#chart").screenshot()


DROP = """async ([files]) => {
    const transfer = new DataTransfer();
    for (const [name, content] of files) {
        const bytes = Uint8Array.from(atob(content), (char) => char.charCodeAt(0));
        transfer.items.add(new File([bytes], name));
    }
    document.querySelector("#drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
}"""


def test_page_shows_the_predictions_of_the_local_model(page, url, net, folder, tmp_path):
    open_page(page, url)
    expect(page.locator("#model")).to_have_text(f"reward box000000000 · views: {', '.join(net.config.views)}")
    transfer = [[name, base64.b64encode((folder / name).read_bytes()).decode()] for name in VIDEO_FILES.values()]
    page.evaluate(DROP, [transfer])
    expect(page.locator("figure")).to_have_count(3)
    assert [view.input_value() for view in page.locator("figure .view").all()] == list(VIDEO_FILES), (
        "by the files' names"
    )
    score(page)
    _, curve = save_curve(page, 0, tmp_path)
    times = np.arange(NUM_FRAMES * SCORE_FPS // FPS) / SCORE_FPS
    np.testing.assert_allclose(curve["time_s"], times)
    assert curve["instruction"] == LIFT and curve["views"] == VIDEO_FILES and curve["fps"] == SCORE_FPS
    assert curve["model"] == {"name": "reward", "version": "box" + "0" * 61}
    views = {
        view: read_frames(folder / VIDEO_FILES[view], list(times), size=net.input_spec.image_size)
        for view in net.config.views
    }
    (local,) = score_episodes(net, [Episode(name="e", views=views, instruction=LIFT, fps=SCORE_FPS)])
    for name in ("progress", "success", "uncertainty"):
        np.testing.assert_allclose(curve[name][1:], getattr(local, name)[1:], atol=TOLERANCE, err_msg=name)
    assert curve["valid"] == local.valid.tolist() and curve["subtask"][1:] == local.subtask[1:].tolist()
    assert np.ptp(curve["progress"]) > TOLERANCE, "a constant prediction would test nothing"
    last_values = [f"{curve['progress'][-1]:.2f}", f"{curve['success'][-1]:.2f}", str(curve["subtask"][-1] + 1)]
    assert row_numbers(page, 0) == last_values


def test_saved_curve_is_compared_with_another_service(page, url, folder, tmp_path):
    open_page(page, url)
    choose_files(page, folder / VIDEO_FILES["front"])
    score(page)
    single_curve = chart_png(page)
    score(page, "open the drawer")
    expect(page.locator("#curves tbody tr")).to_have_count(2)
    assert chart_png(page) != single_curve
    path, first = save_curve(page, 0, tmp_path)
    _, second = save_curve(page, 1, tmp_path)
    assert (first["instruction"], second["instruction"]) == (LIFT, "open the drawer")
    with serving(HashModel()) as other_url:
        open_page(page, other_url)
        page.set_input_files("#saved", path)
        expect(page.locator("#curves tbody tr")).to_have_count(1)
        choose_files(page, folder / VIDEO_FILES["front"])
        score(page)
        versions = page.locator("#curves code").all_inner_texts()
        assert versions == ["box000000000", "000000000000"]
        _, reloaded = save_curve(page, 0, tmp_path)
        assert reloaded == first
        page.locator("#curves").get_by_role("button", name="remove").first.click()
        assert page.locator("#curves code").all_inner_texts() == ["000000000000"]


def test_cursor_and_videos_follow_each_other(page, url, folder):
    open_page(page, url)
    choose_files(page, *(folder / name for name in VIDEO_FILES.values()))
    score(page)
    box = page.locator("#chart").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
    seek_time = page.locator("video").first.evaluate("(video) => video.currentTime")
    assert 0.8 < seek_time < 1.6
    expect(page.locator("#readout")).to_have_text(f"{seek_time:.2f} s")
    page.keyboard.press("ArrowRight")
    for video in page.locator("video").all():
        assert abs(video.evaluate("(video) => video.currentTime") - seek_time - 1 / SCORE_FPS) < 0.01
    page.keyboard.press("Home")
    page.click("#play")
    expect(page.locator("#readout")).to_have_text(f"{NUM_FRAMES / FPS:.2f} s")
    expect(page.locator("#play")).to_have_text("▶")
    end_times = [video.evaluate("(video) => video.currentTime") for video in page.locator("video").all()]
    assert np.ptp(end_times) < 0.1, "the videos play in sync"


def test_model_without_input_spec_gets_original_views_and_sizes(page, folder, tmp_path):
    model = HashModel()
    video_path = tmp_path / "top view (2).mp4"
    write_video(video_path, np.zeros((4, 48, 1024, 3), np.uint8), FPS)
    with serving(model) as url:
        open_page(page, url)
        choose_files(page, video_path)
        view = page.locator("figure .view")
        assert view.input_value() == "top_view_2_"
        view.fill("top")
        score(page)
        _, curve = save_curve(page, 0, tmp_path)
    assert curve["views"] == {"top": video_path.name} and len(curve["time_s"]) == 2


RECORD = """async () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
    const context = canvas.getContext("2d");
    const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: "video/webm" }), chunks = [];
    recorder.ondataavailable = (event) => chunks.push(event.data);
    const timer = setInterval(() => {
        context.fillStyle = `hsl(${performance.now() % 360} 80% 50%)`;
        context.fillRect(0, 0, 64, 48);
    }, 30);
    recorder.start();
    await new Promise((resolve) => setTimeout(resolve, 1300));
    await new Promise((resolve) => { recorder.onstop = resolve; recorder.stop(); });
    clearInterval(timer);
    const transfer = new DataTransfer();
    transfer.items.add(new File(chunks, "recorded.webm"));
    document.querySelector("#drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
}"""


def test_recorded_video_without_duration(page, tmp_path):
    with serving(HashModel()) as url:
        open_page(page, url)
        page.evaluate(RECORD)
        expect(page.locator("figure")).to_have_count(1)
        score(page)
        _, curve = save_curve(page, 0, tmp_path)
    assert curve["views"] == {"recorded": "recorded.webm"} and 4 <= len(curve["time_s"]) <= 10


@pytest.mark.parametrize(
    "action, message",
    [
        (
            lambda page: score(page, "  ", state="failed"),
            "instructions: got one with 2 characters, expected 1 to 2000 characters",
        ),
        (lambda page: score(page, fps=0, state="idle"), "frames per second: expected a number above 0"),
        (lambda page: page.set_input_files("#files", [INVALID_VIDEO]), "none.mp4: this browser cannot decode it"),
        (lambda page: page.set_input_files("#saved", [INVALID_CURVE]), "none.json: its format is undefined"),
    ],
)
def test_errors_are_displayed(page: Page, url: str, folder: Path, action: Callable, message: str) -> None:
    open_page(page, url)
    choose_files(page, folder / VIDEO_FILES["front"])
    action(page)
    expect(page.locator("#message")).to_contain_text(message)
    score(page)
    expect(page.locator("#message")).to_be_hidden()


INVALID_VIDEO: Any = {"name": "none.mp4", "mimeType": "video/mp4", "buffer": b"no video at all"}
INVALID_CURVE: Any = {"name": "none.json", "mimeType": "application/json", "buffer": b"{}"}


def test_duplicate_view_and_fifth_video_are_rejected(page, url, folder):
    open_page(page, url)
    choose_files(page, *(folder / name for name in VIDEO_FILES.values()))
    page.locator("figure .view").nth(2).select_option("front")
    page.fill("#instruction", LIFT)
    page.click("#score")
    expect(page.locator("#message")).to_have_text("two videos have the view front: expected each view once")
    choose_files(page, folder / VIDEO_FILES["side"])
    page.set_input_files("#files", [folder / VIDEO_FILES["side"]])
    expect(page.locator("#message")).to_have_text("At most 4 videos, one per camera: 3.mp4 was left out.")
    page.get_by_role("button", name="remove 3.mp4").nth(1).click()
    expect(page.locator("figure")).to_have_count(3)


def test_full_service_is_retried(page, folder):
    config = ServeConfig(port=0, drain_timeout_s=5, limits=ServeLimits(max_sessions=1))
    with serving(HashModel(), config=config) as url, RewardClient(url) as client:
        client.reset([0], [0], [LIFT], frames_by_view(random_videos(1, 1)[0]))
        open_page(page, url)
        choose_files(page, folder / VIDEO_FILES["front"])
        page.fill("#instruction", LIFT)
        page.click("#score")
        expect(page.locator("#state")).to_have_text("1 episodes are active already: end some; retrying in 1 s")
        client.end([0], [0])
        expect(page.locator("body")).to_have_attribute("data-state", "done")
        expect(page.locator("#message")).to_be_hidden()


def test_stopping_keeps_the_curve_and_ends_the_session(page, folder, tmp_path):
    with serving(HashModel(batch_s=0.3)) as url:
        open_page(page, url)
        choose_files(page, folder / VIDEO_FILES["front"])
        page.fill("#instruction", LIFT)
        page.click("#score")
        expect(page.locator("#state")).to_have_text(re.compile(r"[3-6] of 12 frames"))
        assert httpx.get(f"{url}/v1/sessions").json()["clients"][0]["client_id"].startswith("page-")
        page.click("#stop")
        expect(page.locator("body")).to_have_attribute("data-state", "stopped")
        _, curve = save_curve(page, 0, tmp_path)
        assert 3 <= len(curve["time_s"]) < 12
        assert httpx.get(f"{url}/v1/sessions").json() == {"clients": [], "num_omitted_clients": 0}


def test_browser_prompts_for_the_key_and_sends_it(browser: Browser, folder: Path) -> None:
    with serving(HashModel(), api_key="sesame") as url:
        with open_checked_page(browser) as page, pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
            page.goto(url)  # the browser prompts for a key
        with open_checked_page(browser, http_credentials={"username": "anybody", "password": "sesame"}) as page:
            open_page(page, url)
            choose_files(page, folder / VIDEO_FILES["front"])
            score(page)


def test_cross_origin_form_with_a_remembered_key_is_rejected() -> None:
    with serving(HashModel(), api_key="sesame") as url:
        for password, origin, status in [("sesame", url, 422), ("sesame", "http://elsewhere", 403), ("no", url, 401)]:
            response = httpx.post(
                f"{url}/evaluate_batch_npy",  # takes a form, which any page may send
                files={"frames": b"no frames"},
                auth=("anybody", password),
                headers={"Origin": origin},
            )
            assert response.status_code == status


def test_live_page_shows_active_clients(page, browser):
    with serving(HashModel()) as url, RewardClient(url, client_id="arm-7") as client:
        page.goto(f"{url}/live")
        expect(page.locator("#empty")).to_have_text("No active clients.")
        video = random_videos(3, 4)
        client.reset([0, 1, 2], [5] * 3, [LIFT] * 3, frames_by_view(video[0]))
        for t in (1, 2, 3):
            prediction = client.step([0, 1, 2], [5] * 3, [t] * 3, frames_by_view(video[t]))
        row = page.locator("tr[data-client='arm-7']")
        progress, success = (f"{x.mean():.2f}" for x in (prediction.progress, prediction.success))
        numbers = row.locator(".number")
        expect(numbers.nth(1)).to_have_text("3")
        assert numbers.all_inner_texts()[:4] == ["3", "3", progress, success if prediction.success.min() >= 0 else "–"]
        expect(numbers.nth(4)).to_have_text("2 s ago")
        title = str(row.locator(".bar").nth(1).get_attribute("title"))
        assert title.startswith(f"environment 1, episode 5, step 3: progress {prediction.progress[1]:.2f}, success")
        client.end([0, 1, 2], [5] * 3)
        expect(row).to_have_count(0)


def test_overview_lists_the_latest_clients_and_first_environments() -> None:
    frame = random_videos(100, 1)[0]
    with serving(HashModel()) as url:
        for index in range(203):
            with RewardClient(url, client_id=f"r{index}") as client:
                client.reset([0], [0], [LIFT], frames_by_view(frame[:1]))
        with RewardClient(url, client_id="wide") as client:
            client.reset(list(range(100)), [2] * 100, [LIFT] * 100, frames_by_view(frame))
        overview = httpx.get(f"{url}/v1/sessions").json()
    assert len(overview["clients"]) == 200 and overview["num_omitted_clients"] == 4
    wide = next(client for client in overview["clients"] if client["client_id"] == "wide")
    assert wide["num_envs"] == 100 and [env["env_id"] for env in wide["envs"]] == list(range(64))
    assert wide["envs"][3] == {**wide["envs"][0], "env_id": 3} and wide["envs"][0]["episode_id"] == 2
    assert wide["max_step"] == 0 and wide["mean_progress"] == 0
    assert "r202" in {run["client_id"] for run in overview["clients"]} and "r0" not in {
        run["client_id"] for run in overview["clients"]
    }


CONTENT_TYPES = {"": "text/html", "live": "text/html", "page/page.js": "text/javascript", "page/look.css": "text/css"}


@pytest.mark.parametrize("path", CONTENT_TYPES)
def test_pages_have_strict_security_headers(url: str, path: str) -> None:
    for method in (httpx.get, httpx.head):
        response = method(f"{url}/{path}")
        assert (
            response.status_code == 200 and response.headers["content-type"] == f"{CONTENT_TYPES[path]}; charset=utf-8"
        )
        assert response.headers["x-content-type-options"] == "nosniff"
        policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'"
        assert policy["style-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    text = httpx.get(f"{url}/{path}").text
    assert "http://" not in text and "https://" not in text


@pytest.mark.parametrize(
    "path", ["page/", "page/nothing.js", "page/__init__.py", "page/..%2Fsessions.py", "page/page.html"]
)
def test_other_files_are_not_served(url: str, path: str) -> None:
    response = httpx.get(f"{url}/{path}")
    assert response.status_code == 404 and response.json()["code"] == "not_found"
    assert httpx.post(url, content=b"{}").status_code == 405
