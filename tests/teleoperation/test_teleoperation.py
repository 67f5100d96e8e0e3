"""A person acts on a local page: commands by key become actions of the environment, and end when the page is gone."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from browsers import open_printed_page, wait_for_step
from child_process import start_process
from PIL import Image
from playwright.sync_api import Page, expect

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.tabletop.person_policy import view_axes
from embodied_rm.teleoperation.teleoperation_server import serve_in_background
from embodied_rm.teleoperation.teleoperation_session import COMMAND_TIMEOUT_S, TeleoperationSession
from embodied_sim.vec_env import TabletopVecEnv

STATE = {"instruction": "lift it", "episode": 1, "step": 0, "max_steps": 60, "axes": [[1, 0], [0, 1]]}
IMAGES = [np.full((8, 8, 3), value, np.uint8) for value in (40, 200)]


class Clock:
    """A clock that a test sets."""

    time_s = 0.0

    def __call__(self) -> float:
        return self.time_s


def test_an_old_command_moves_nothing_and_keeps_the_grip() -> None:
    clock = Clock()
    session = TeleoperationSession(3, clock)
    assert session.read_action(4).tolist() == [0, 0, 0, 0]
    session.command([1, -0.5, 0, 1])
    assert session.read_action(4).tolist() == [1, -0.5, 0, 1]
    clock.time_s = COMMAND_TIMEOUT_S
    assert session.read_action(4).tolist() == [0, 0, 0, 1]


def test_an_episode_waits_for_the_first_move_after_it_began() -> None:
    session, waited = TeleoperationSession(3), threading.Event()
    session.command([1, 0, 0, -1])  # of the episode before

    def wait() -> None:
        session.wait_for_motion()
        waited.set()

    session.publish(IMAGES, STATE, starts=True)
    session.command([0, 0, 0, 1])  # before anybody waits for it
    thread = threading.Thread(target=wait)
    thread.start()
    assert not waited.wait(0.3), "the grip alone begins nothing"
    session.command([0, 0, -1, 1])
    assert waited.wait(20)
    thread.join()
    waited.clear()
    session.publish(IMAGES, STATE, starts=True)
    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(3):
        session.command([0, 0, -1, 1])
        assert not waited.wait(0.1), "the key of the episode before is still held"
    session.command([0, 0, 0, 1])
    session.command([0, 0, -1, 1])
    assert waited.wait(20)
    thread.join()


def test_a_page_waits_for_the_next_step() -> None:
    session = TeleoperationSession(3)
    assert session.wait_for_step(0, 0.01) == {"number": 0}
    threading.Timer(0.1, session.publish, (IMAGES, STATE)).start()
    assert session.wait_for_step(0, 20) == {"number": 1, **STATE}
    image = np.asarray(Image.open(io.BytesIO(session.image())))
    assert image.shape == (8, 20, 3)
    assert abs(int(image[4, 3, 0]) - 40) < 20 and abs(int(image[4, 16, 0]) - 200) < 20


@pytest.fixture
def session_and_url() -> Iterator[tuple[TeleoperationSession, str]]:
    session = TeleoperationSession(3)
    with serve_in_background(session, 0) as url:
        yield session, url


def test_commands_are_bounded_and_checked(session_and_url: tuple[TeleoperationSession, str]) -> None:
    session, url = session_and_url
    assert httpx.put(f"{url}command", json={"action": [9, -9, 0.5, 1]}).status_code == 200
    assert session.read_action(4).tolist() == [1, -1, 0.5, 1]
    invalid = [{"action": [0, 0, 0]}, {"action": [0, 0, 0, True]}, {"action": [0, 0, 0, "1"]}, [], {"act": 1}]
    for payload in invalid:
        response = httpx.put(f"{url}command", json=payload)
        assert response.status_code == 422 and response.json() == {"error": '{"action": 4 numbers} was expected'}
    nan = httpx.put(f"{url}command", content='{"action": [0, 0, 0, NaN]}', headers={"Content-Type": "application/json"})
    assert nan.status_code == 422
    assert httpx.put(f"{url}steps/0", json={}).status_code == 405


def test_only_the_page_may_command(session_and_url: tuple[TeleoperationSession, str]) -> None:
    session, url = session_and_url
    wrong = re.sub(r"/[^/]+/$", "/wrong/", url)
    action = {"action": [1, 1, 1, 1]}
    assert httpx.put(f"{wrong}command", json=action).status_code == 403
    assert httpx.put(f"{url}command", json=action, headers={"Origin": "http://evil.example"}).status_code == 403
    assert session.read_action(4).tolist() == [0, 0, 0, 0]


def test_arrows_are_those_of_the_first_view() -> None:
    for view, right, forward in (("front", (0.65, 0.76), (-0.76, 0.65)), ("wrist", (0, -1), (1, 0))):
        envs = TabletopVecEnv("lift_cube", 1, views=(view,))
        np.testing.assert_allclose(view_axes(envs), [right, forward], atol=0.02)
        envs.close()


def test_a_person_records_demonstrations_by_keyboard(page: Page, tmp_path: Path) -> None:
    small = ["tasks=[press_button]", "num_successes=0", "num_failures=0", "env.views=[front]", "env.image_size=64"]
    command = [sys.executable, "-m", "embodied_rm", "collect", *small, "policies=[person]", "rollouts_per_policy=1"]
    with start_process([*command, f"out={tmp_path}/run"]) as process:
        open_printed_page(page, process)
        page.locator('body[data-step="episode 1/0"]').wait_for(timeout=60_000)
        expect(page.get_by_role("alert")).to_contain_text("begins with your first move")
        page.keyboard.press("Space")
        expect(page.locator("#grip")).to_have_text("grip closed")
        page.keyboard.down("ArrowRight")
        wait_for_step(page, 3)
        page.keyboard.up("ArrowRight")
        page.keyboard.down("KeyW")
        wait_for_step(page, 7)
        page.goto("about:blank")  # the page is closed: the arm stops
        assert process.wait(120) == 0
    (episode,) = open_dataset(tmp_path / "run" / "dataset")
    assert episode.action is not None and episode.metadata["outcome"] == "rollout" and len(episode) > 20
    np.testing.assert_allclose(episode.action[0], [0.65, 0.76, 0, 1], atol=0.02)
    up, still = (np.all(episode.action == [0, 0, motion, 1], axis=1) for motion in (1, 0))
    assert up.any() and still[-1] and np.flatnonzero(up).min() > 0


def test_a_port_without_a_page_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["play", "task=lift_cube"], ["collect", "tasks=[lift_cube]"]):
        assert main([*command, "port=8080", f"out={tmp_path}/run"]) == 2
        assert "port=8080 is that of the page of polic" in capsys.readouterr().err.replace("\n", " ")
