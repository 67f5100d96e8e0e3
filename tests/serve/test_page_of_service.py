"""The pages of the service in a real browser: what they show is what the model says of the same videos."""

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
from browsers import watched
from known_models import HashModel
from playwright.sync_api import Browser, Error, Page, expect
from services import by_view, serving, videos

from embodied_rm.data.video.files import read_frames, write_video
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.serve.service_config import ServeConfig, ServeLimits
from embodied_rm.types import Episode, Frames

expect.set_options(timeout=20_000)  # beside other tests a browser is slow

LIFT = "lift the red cube"
FPS, LENGTH, RATE = 10, 24, 5
CLOSE = 0.02
"""By how much a prediction may differ because a browser decodes another way than libav."""
NAMES = {"front": "take_3_front.mp4", "wrist": "Wrist camera.mp4", "side": "3.mp4"}
"""View -> a file that shows it; the last is what is left."""


def blocks(view: int) -> Frames:
    """uint8 [T, H, W, 3]: blocks of flat color, of which one moves. Four times as large as the model sees them: how
    the colors of neighbors mix at edges, of which decoders think differently, is then hardly seen."""
    shown = np.full((LENGTH, 256, 256, 3), (205, 190, 165), np.uint8)
    shown[:, 128:] = (90 + 20 * view, 100, 120)
    for t in range(LENGTH):
        shown[t, 64:128, 8 * t : 8 * t + 64] = (210, 40, 40)
    return shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of one episode."""
    made = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(NAMES.values()):
        write_video(made / name, blocks(number), FPS)
    return made


@pytest.fixture(scope="module")
def net() -> Any:
    """The model in the box."""
    return load_progress_net(BUNDLED_CHECKPOINT)


@pytest.fixture(scope="module")
def url(net: Any) -> Iterator[str]:
    """A service of it."""
    with serving(load_progress_net(BUNDLED_CHECKPOINT), version="box" + "0" * 61) as address:
        yield address


def opened(page: Page, url: str) -> Page:
    page.goto(url)
    page.locator("body.ready").wait_for()
    return page


def chosen(page: Page, *files: Path) -> None:
    """Choose files, and wait until the page shows them."""
    before = page.locator("figure").count()
    page.set_input_files("#files", list(files))
    expect(page.locator("figure")).to_have_count(before + len(files))


def judge(page: Page, instruction: str = LIFT, rate: float = RATE, end: str = "done") -> None:
    page.fill("#instruction", instruction)
    page.fill("#rate", str(rate))
    page.click("#judge")
    expect(page.locator("body")).to_have_attribute("data-state", end, timeout=60_000)


def saved(page: Page, number: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A curve of the page, as it saves it."""
    with page.expect_download() as download:
        page.locator("#curves .save").nth(number).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path, json.loads(path.read_text())


def shown_numbers(page: Page, row: int) -> list[str]:
    return page.locator("#curves tbody tr").nth(row).locator(".number").all_inner_texts()


def pixels(page: Page) -> bytes:
    return page.locator("#chart").screenshot()


DROP = """async ([files]) => {
    const carried = new DataTransfer();
    for (const [name, content] of files) {
        const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
        carried.items.add(new File([bytes], name));
    }
    document.querySelector("#drop").dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true }));
}"""


def test_what_the_page_shows_is_what_the_model_says_of_the_same_frames(page, url, net, folder, tmp_path):
    opened(page, url)
    expect(page.locator("#model")).to_have_text(f"reward box000000000 · views: {', '.join(net.config.views)}")
    carried = [[name, base64.b64encode((folder / name).read_bytes()).decode()] for name in NAMES.values()]
    page.evaluate(DROP, [carried])
    expect(page.locator("figure")).to_have_count(3)
    assert [view.input_value() for view in page.locator("figure .view").all()] == list(NAMES), "by the files' names"
    judge(page)
    _, curve = saved(page, 0, tmp_path)
    times = np.arange(LENGTH * RATE // FPS) / RATE
    np.testing.assert_allclose(curve["time_s"], times)
    assert curve["instruction"] == LIFT and curve["views"] == NAMES and curve["fps"] == RATE
    assert curve["model"] == {"name": "reward", "version": "box" + "0" * 61}
    views = {
        view: read_frames(folder / NAMES[view], list(times), size=net.input_spec.image_size)
        for view in net.config.views
    }
    (here,) = score_episodes(net, [Episode(name="e", views=views, instruction=LIFT, fps=RATE)])
    for name in ("progress", "success", "uncertainty"):
        np.testing.assert_allclose(curve[name][1:], getattr(here, name)[1:], atol=CLOSE, err_msg=name)
    assert curve["valid"] == here.valid.tolist() and curve["subtask"][1:] == here.subtask[1:].tolist()
    assert np.ptp(curve["progress"]) > CLOSE, "a model that says the same of everything shows nothing"
    at_the_end = [f"{curve['progress'][-1]:.2f}", f"{curve['success'][-1]:.2f}", str(curve["subtask"][-1] + 1)]
    assert shown_numbers(page, 0) == at_the_end


def test_a_curve_that_was_saved_is_drawn_beside_one_of_another_service(page, url, folder, tmp_path):
    opened(page, url)
    chosen(page, folder / NAMES["front"])
    judge(page)
    alone = pixels(page)
    judge(page, "open the drawer")
    expect(page.locator("#curves tbody tr")).to_have_count(2)
    assert pixels(page) != alone
    path, first = saved(page, 0, tmp_path)
    _, second = saved(page, 1, tmp_path)
    assert (first["instruction"], second["instruction"]) == (LIFT, "open the drawer")
    with serving(HashModel()) as other:
        opened(page, other)
        page.set_input_files("#saved", path)
        expect(page.locator("#curves tbody tr")).to_have_count(1)
        chosen(page, folder / NAMES["front"])
        judge(page)
        told = page.locator("#curves code").all_inner_texts()
        assert told == ["box000000000", "000000000000"], "each names its model"
        _, again = saved(page, 0, tmp_path)
        assert again == first
        page.locator("#curves").get_by_role("button", name="remove").first.click()
        assert page.locator("#curves code").all_inner_texts() == ["000000000000"]


def test_the_cursor_follows_the_video_and_the_video_the_curve(page, url, folder):
    opened(page, url)
    chosen(page, *(folder / name for name in NAMES.values()))
    judge(page)
    box = page.locator("#chart").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
    there = page.locator("video").first.evaluate("(video) => video.currentTime")
    assert 0.8 < there < 1.6
    expect(page.locator("#readout")).to_have_text(f"{there:.2f} s")
    page.keyboard.press("ArrowRight")
    for video in page.locator("video").all():
        assert abs(video.evaluate("(video) => video.currentTime") - there - 1 / RATE) < 0.01
    page.keyboard.press("Home")
    page.click("#play")
    expect(page.locator("#readout")).to_have_text(f"{LENGTH / FPS:.2f} s")
    expect(page.locator("#play")).to_have_text("▶")
    stood = [video.evaluate("(video) => video.currentTime") for video in page.locator("video").all()]
    assert np.ptp(stood) < 0.1, "they play together"


def test_a_model_of_any_view_and_size_gets_the_videos_as_they_are(page, folder, tmp_path):
    model = HashModel()
    wide = tmp_path / "top view (2).mp4"
    write_video(wide, np.zeros((4, 48, 1024, 3), np.uint8), FPS)
    with serving(model) as url:
        opened(page, url)
        chosen(page, wide)
        view = page.locator("figure .view")
        assert view.input_value() == "top_view_2_"
        view.fill("top")
        judge(page)
        _, curve = saved(page, 0, tmp_path)
    assert curve["views"] == {"top": wide.name} and len(curve["time_s"]) == 2


RECORD = """async () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
    const pen = canvas.getContext("2d");
    const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: "video/webm" }), parts = [];
    recorder.ondataavailable = (event) => parts.push(event.data);
    const drawn = setInterval(() => {
        pen.fillStyle = `hsl(${performance.now() % 360} 80% 50%)`;
        pen.fillRect(0, 0, 64, 48);
    }, 30);
    recorder.start();
    await new Promise((resolve) => setTimeout(resolve, 1300));
    await new Promise((resolve) => { recorder.onstop = resolve; recorder.stop(); });
    clearInterval(drawn);
    const carried = new DataTransfer();
    carried.items.add(new File(parts, "recorded.webm"));
    document.querySelector("#drop").dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true }));
}"""


def test_a_video_that_a_browser_recorded_and_that_does_not_say_how_long_it_is(page, tmp_path):
    with serving(HashModel()) as url:
        opened(page, url)
        page.evaluate(RECORD)
        expect(page.locator("figure")).to_have_count(1)
        judge(page)
        _, curve = saved(page, 0, tmp_path)
    assert curve["views"] == {"recorded": "recorded.webm"} and 4 <= len(curve["time_s"]) <= 10


@pytest.mark.parametrize(
    "mistake, sentence",
    [
        (lambda page: judge(page, "  ", end="failed"), "instruction: got one of 2 letters, expected 1 to 2000 letters"),
        (lambda page: judge(page, rate=0, end="idle"), "frames a second: a number above 0 was expected"),
        (lambda page: page.set_input_files("#files", [NO_VIDEO]), "none.mp4: this browser cannot decode it"),
        (lambda page: page.set_input_files("#saved", [NO_CURVE]), "none.json: its format is undefined"),
    ],
)
def test_mistakes_are_told_in_words(page: Page, url: str, folder: Path, mistake: Callable, sentence: str) -> None:
    opened(page, url)
    chosen(page, folder / NAMES["front"])
    mistake(page)
    expect(page.locator("#message")).to_contain_text(sentence)
    judge(page)
    expect(page.locator("#message")).to_be_hidden()


NO_VIDEO: Any = {"name": "none.mp4", "mimeType": "video/mp4", "buffer": b"no video at all"}
NO_CURVE: Any = {"name": "none.json", "mimeType": "application/json", "buffer": b"{}"}


def test_two_videos_of_one_view_and_a_fifth_video_are_refused(page, url, folder):
    opened(page, url)
    chosen(page, *(folder / name for name in NAMES.values()))
    page.locator("figure .view").nth(2).select_option("front")
    page.fill("#instruction", LIFT)
    page.click("#judge")
    expect(page.locator("#message")).to_have_text("two videos show the view front: each view once was expected")
    chosen(page, folder / NAMES["side"])
    page.set_input_files("#files", [folder / NAMES["side"]])
    expect(page.locator("#message")).to_have_text("At most 4 videos, one a camera: 3.mp4 was left out.")
    page.get_by_role("button", name="remove 3.mp4").nth(1).click()
    expect(page.locator("figure")).to_have_count(3)


def test_a_service_that_is_full_is_asked_again(page, folder):
    config = ServeConfig(port=0, drain_timeout_s=5, limits=ServeLimits(max_sessions=1))
    with serving(HashModel(), config=config) as url, RewardClient(url) as client:
        client.reset([0], [0], [LIFT], by_view(videos(1, 1)[0]))
        opened(page, url)
        chosen(page, folder / NAMES["front"])
        page.fill("#instruction", LIFT)
        page.click("#judge")
        expect(page.locator("#state")).to_have_text("1 episodes are under way already: end some; again in 1 s")
        client.end([0], [0])
        expect(page.locator("body")).to_have_attribute("data-state", "done")
        expect(page.locator("#message")).to_be_hidden()


def test_what_is_stopped_keeps_what_was_judged_and_leaves_nothing_behind(page, folder, tmp_path):
    with serving(HashModel(batch_s=0.3)) as url:
        opened(page, url)
        chosen(page, folder / NAMES["front"])
        page.fill("#instruction", LIFT)
        page.click("#judge")
        expect(page.locator("#state")).to_have_text(re.compile(r"[3-6] of 12 frames"))
        assert httpx.get(f"{url}/v1/sessions").json()["clients"][0]["client_id"].startswith("page-")
        page.click("#stop")
        expect(page.locator("body")).to_have_attribute("data-state", "stopped")
        _, curve = saved(page, 0, tmp_path)
        assert 3 <= len(curve["time_s"]) < 12
        assert httpx.get(f"{url}/v1/sessions").json() == {"clients": [], "num_omitted_clients": 0}


def test_a_browser_asks_for_the_key_and_sends_it_with_everything(browser: Browser, folder: Path) -> None:
    with serving(HashModel(), key="sesame") as url:
        with watched(browser) as page, pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
            page.goto(url)  # it asks, and nobody answers
        with watched(browser, http_credentials={"username": "anybody", "password": "sesame"}) as page:
            opened(page, url)
            chosen(page, folder / NAMES["front"])
            judge(page)


def test_a_page_elsewhere_has_nothing_judged_with_a_key_that_a_browser_remembers() -> None:
    with serving(HashModel(), key="sesame") as url:
        for password, origin, status in [("sesame", url, 422), ("sesame", "http://elsewhere", 403), ("no", url, 401)]:
            told = httpx.post(
                f"{url}/evaluate_batch_npy",  # of all paths the one that takes a form, as any page may send it
                files={"frames": b"no frames"},
                auth=("anybody", password),
                headers={"Origin": origin},
            )
            assert told.status_code == status


def test_who_looks_on_sees_the_runs_and_their_progress(page, browser):
    with serving(HashModel()) as url, RewardClient(url, client_id="arm-7") as client:
        page.goto(f"{url}/live")
        expect(page.locator("#empty")).to_have_text("Nobody is being judged.")
        video = videos(3, 4)
        client.reset([0, 1, 2], [5] * 3, [LIFT] * 3, by_view(video[0]))
        for t in (1, 2, 3):
            said = client.step([0, 1, 2], [5] * 3, [t] * 3, by_view(video[t]))
        row = page.locator("tr[data-client='arm-7']")
        progress, success = (f"{x.mean():.2f}" for x in (said.progress, said.success))
        numbers = row.locator(".number")
        expect(numbers.nth(1)).to_have_text("3")
        assert numbers.all_inner_texts()[:4] == ["3", "3", progress, success if said.success.min() >= 0 else "–"]
        expect(numbers.nth(4)).to_have_text("2 s ago")
        title = str(row.locator(".bar").nth(1).get_attribute("title"))
        assert title.startswith(f"environment 1, episode 5, step 3: progress {said.progress[1]:.2f}, success")
        client.end([0, 1, 2], [5] * 3)
        expect(row).to_have_count(0)


def test_of_many_runs_the_last_are_told_and_of_many_environments_the_first() -> None:
    frame = videos(100, 1)[0]
    with serving(HashModel()) as url:
        for number in range(203):
            with RewardClient(url, client_id=f"r{number}") as client:
                client.reset([0], [0], [LIFT], by_view(frame[:1]))
        with RewardClient(url, client_id="wide") as client:
            client.reset(list(range(100)), [2] * 100, [LIFT] * 100, by_view(frame))
        told = httpx.get(f"{url}/v1/sessions").json()
    assert len(told["clients"]) == 200 and told["num_omitted_clients"] == 4
    wide = next(run for run in told["clients"] if run["client_id"] == "wide")
    assert wide["num_envs"] == 100 and [one["env_id"] for one in wide["envs"]] == list(range(64))
    assert wide["envs"][3] == {**wide["envs"][0], "env_id": 3} and wide["envs"][0]["episode_id"] == 2
    assert wide["max_step"] == 0 and wide["mean_progress"] == 0
    assert "r202" in {run["client_id"] for run in told["clients"]} and "r0" not in {
        run["client_id"] for run in told["clients"]
    }


KINDS = {"": "text/html", "live": "text/html", "page/page.js": "text/javascript", "page/look.css": "text/css"}


@pytest.mark.parametrize("path", KINDS)
def test_pages_load_nothing_from_elsewhere_and_are_what_they_say(url: str, path: str) -> None:
    for ask in (httpx.get, httpx.head):
        told = ask(f"{url}/{path}")
        assert told.status_code == 200 and told.headers["content-type"] == f"{KINDS[path]}; charset=utf-8"
        assert told.headers["x-content-type-options"] == "nosniff"
        policy = dict(part.strip().split(" ", 1) for part in told.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'"
        assert policy["style-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    text = httpx.get(f"{url}/{path}").text
    assert "http://" not in text and "https://" not in text


@pytest.mark.parametrize(
    "path", ["page/", "page/nothing.js", "page/__init__.py", "page/..%2Fsessions.py", "page/page.html"]
)
def test_nothing_else_lies_beside_them(url: str, path: str) -> None:
    told = httpx.get(f"{url}/{path}")
    assert told.status_code == 404 and told.json()["code"] == "not_found"
    assert httpx.post(url, content=b"{}").status_code == 405
