"""A person compares clips: the answers on the page end up in the table, whatever side a clip was on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from annotated_envs import LENGTH, VIEWS, read_number, send_request
from playwright.sync_api import Page, expect
from server_threads import serve_in_thread

from embodied_rm.annotate.comparison_server import ComparisonHandler, ComparisonServer
from embodied_rm.annotate.comparison_session import ComparisonSession
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.labels.comparisons import COMPARISONS_FILE, ClipComparison, draw_clip_pairs, read_comparisons

expect.set_options(timeout=20_000)  # next to other tests a browser is slow
NUM_PAIRS = 6
PAIRS = draw_clip_pairs({"cup_0": "put the cup away", "cup_1": "put the cup away"}, NUM_PAIRS, 0.25, seed=0)
EPISODES = {"cup_0": 0, "cup_1": 1}


@contextmanager
def serve_pairs(recordings: Path, folder: Path, seed: int = 0) -> Iterator[ComparisonServer]:
    session = ComparisonSession(open_dataset(recordings), PAIRS, folder, seed)
    server = ComparisonServer(session, 0)
    with serve_in_thread(server):
        yield server


@pytest.fixture
def pair_server(recordings: Path, tmp_path: Path) -> Iterator[ComparisonServer]:
    with serve_pairs(recordings, tmp_path) as server:
        yield server


def answer(server: ComparisonServer, index: int, choice: str) -> None:
    body = json.dumps({"choice": choice}).encode()
    response = send_request(server, f"pairs/{index}", "PUT", body, Content_Type="application/json")
    assert response.status == 200 and response.json == {"choice": choice}


def side_of_first(server: ComparisonServer, index: int) -> str:
    """Return the side on which the first clip of a pair is shown, by its episode."""
    first = EPISODES[PAIRS[index].first.episode]
    return "AB"[[clip["episode"] for clip in send_request(server, f"pairs/{index}").json["clips"]].index(first)]


def stored(folder: Path) -> list[ClipComparison]:
    return read_comparisons(folder / COMPARISONS_FILE)


def test_an_answer_is_of_the_clip_and_not_of_the_side(recordings, tmp_path):
    sides = set()
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with serve_pairs(recordings, folder, seed) as server:
            for index in range(NUM_PAIRS):
                side = side_of_first(server, index)
                sides.add(side)
                answer(server, index, side if index % 2 else "BA"["AB".index(side)])
        assert [comparison.answer for comparison in stored(folder)] == ["second", "first"] * 3
        assert [replace(comparison, answer="unanswered") for comparison in stored(folder)] == PAIRS
    assert sides == {"A", "B"}


def test_a_session_goes_on_where_it_ended(recordings, tmp_path):
    with serve_pairs(recordings, tmp_path) as server:
        answer(server, 0, "neither")
        answer(server, 3, "A")
        answer(server, 4, "B")
        answer(server, 4, "skip")  # an answer can be taken back
    assert [comparison.is_decided for comparison in stored(tmp_path)] == [False, False, False, True]
    with serve_pairs(recordings, tmp_path) as server:
        choices = send_request(server, "comparisons").json["choices"]
        assert choices == ["neither", "skip", "skip", "A", "skip", "skip"]
        assert server.session.counts() == {"neither": 1, "unanswered": 4, stored(tmp_path)[3].answer: 1}
    with pytest.raises(UserError, match="comparisons of other pairs"):
        ComparisonSession(open_dataset(recordings), PAIRS[1:], tmp_path, 0)


def test_a_pair_hides_the_names_of_its_episodes(pair_server):
    response = send_request(pair_server, "pairs/0")
    assert response.json["instruction"] == "put the cup away" and b"cup_" not in response.body
    assert {clip["length"] for clip in response.json["clips"]} <= {15, 16}
    assert all(clip["start"] + clip["length"] <= LENGTH and clip["fps"] == 10 for clip in response.json["clips"])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"pairs/{NUM_PAIRS}", b'{"choice": "A"}', 404),
        ("pairs/0", b'{"choice": "first"}', 422),
        ("pairs/0", b'{"choice": ["A"]}', 422),
        ("pairs/0", b'{"choice": "A", "index": 1}', 422),
        ("pairs/0", b"[" * 100_000, 422),
        ("comparisons", b'{"choice": "A"}', 405),
        ("episodes/0", b'{"choice": "A"}', 405),
    ],
)
def test_other_requests_are_rejected(pair_server, tmp_path, path, body, status):
    response = send_request(pair_server, path, "PUT", body, Content_Type="application/json")
    assert response.status == status and set(response.json) == {"error"}
    assert not (tmp_path / COMPARISONS_FILE).exists()


def test_every_route_requires_the_token(pair_server, tmp_path):
    for path in ("", *ComparisonHandler.page_files, "comparisons", "pairs/0", "frames/0/0/0"):
        assert send_request(pair_server, path, token="wrong").status == 403
        assert send_request(pair_server, path).status == 200
    body = b'{"choice": "A"}'
    assert send_request(pair_server, "pairs/0", "PUT", body, "wrong", Content_Type="application/json").status == 403
    assert not (tmp_path / COMPARISONS_FILE).exists()


def painted_numbers(page: Page, side: str) -> list[int]:
    """Return the numbers painted into the displayed images of a clip, one per view."""
    rows = page.evaluate(
        """(side) => [...document.querySelectorAll(`section[data-clip="${side}"] canvas`)].map((c) =>
        [...c.getContext("2d").getImageData(0, c.height / 2, c.width, 1).data])""",
        side,
    )
    return [read_number(np.array(row, np.uint8).reshape(1, -1, 4)) for row in rows]


def test_a_person_answers_by_mouse_and_keys(page, pair_server, tmp_path):
    page.goto(pair_server.url)
    expected = ["A", "neither", "B", "skip", "A", "B"]
    for index, choice in enumerate(expected):
        page.locator(f'body[data-pair="{index}"]').wait_for(timeout=20_000)
        for side, clip in zip("AB", send_request(pair_server, f"pairs/{index}").json["clips"], strict=True):
            page.locator(f'section[data-clip="{side}"][data-frame]').wait_for(timeout=20_000)
            first = 100 * clip["episode"] + clip["start"]
            numbers = painted_numbers(page, side)
            frames = {number - start for number, start in zip(numbers, VIEWS.values(), strict=True)}
            assert len(frames) == 1 and first <= frames.pop() < first + clip["length"]
        if index % 2:
            page.keyboard.press({"neither": "n", "skip": "s", "B": "ArrowRight"}[choice])
        else:
            page.get_by_role("button", name=f"{choice} is closer").click()
    page.locator('body[data-pair="3"]').wait_for(timeout=20_000)  # the one without an answer
    expect(page.locator("#count")).to_have_text(f"pair 4 of {NUM_PAIRS}, 5 answered")
    page.keyboard.press("Backspace")
    page.locator('body[data-pair="2"]').wait_for(timeout=20_000)
    expect(page.get_by_role("button", name="B is closer")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowLeft")
    page.locator('body[data-pair="3"]').wait_for(timeout=20_000)
    page.keyboard.press("a")
    expect(page.get_by_role("alert")).to_contain_text("Every pair is answered")
    choices = [pair_server.session.choice(index) for index in range(NUM_PAIRS)]
    assert choices == ["A", "neither", "A", "A", "A", "B"]
    assert sum(comparison.is_decided for comparison in stored(tmp_path)) == 5
