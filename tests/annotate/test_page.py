"""The page in a real browser: what a person does with it is what is in the dataset afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_envs import LENGTH, STEPS, VIEWS, number_in, served
from browsers import chromium
from playwright.sync_api import Page, expect

from embodied_rm.annotate.annotation_server import AnnotationServer
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Subtask

expect.set_options(timeout=20_000)  # beside other tests a browser is slow

LOOK = """() => ({ frame: +document.body.dataset.frame, said: document.querySelector("#readout b").textContent,
    rows: [...document.querySelectorAll("canvas")].map((c) =>
        [...c.getContext("2d").getImageData(0, c.height / 2, c.width, 1).data]) })"""
"""The number that the page says, and a row of pixels of what every view shows, in one moment."""


def seen(page: Page) -> tuple[int, list[int]]:
    """The number that the page says, and those that are painted into its views, less the views' own."""
    told = page.evaluate(LOOK)
    assert told["said"] == f"frame {told['frame']}"
    painted = [number_in(np.array(row, np.uint8).reshape(1, -1, 4)) for row in told["rows"]]
    return told["frame"], [number - first for number, first in zip(painted, VIEWS.values(), strict=True)]


def at(page: Page, frame: int) -> None:
    """Wait until the page shows a frame, and see that all views do."""
    page.locator(f'body[data-frame="{frame}"]').wait_for(timeout=10_000)
    assert seen(page) == (frame, [frame] * 3)


def opened(page: Page, server: AnnotationServer) -> Page:
    page.goto(server.url)
    at(page, 0)
    return page


def edges(page: Page) -> list[int]:
    return [int(str(edge.get_attribute("aria-valuenow"))) for edge in page.locator(".edge").all()]


def drag(page: Page, boundary: int, to: int, *, release: bool = True) -> None:
    """Take hold of a boundary and carry it to a frame."""
    timeline, edge = page.locator("#timeline").bounding_box(), page.locator(".edge").nth(boundary).bounding_box()
    assert timeline is not None and edge is not None
    y, here = edge["y"] + edge["height"] / 2, edge["x"] + edge["width"] / 2
    there = timeline["x"] + timeline["width"] * to / LENGTH
    page.mouse.move(here, y)
    page.mouse.down()
    page.mouse.move((here + there) / 2, y, steps=3)
    page.mouse.move(there, y, steps=3)
    if release:
        page.mouse.up()


def success(page: Page, said: str) -> None:
    page.get_by_role("button", name=said, exact=True).click()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).first.click()
    expect(page.locator("#state")).to_have_text("saved")


def stored(folder: Path, index: int = 0) -> tuple[list[tuple[str, int, int]], bool | None]:
    meta = open_dataset(folder).meta[index]
    return [(step.name, step.start, step.end) for step in meta.subtasks], meta.success


def steps_on(page: Page) -> list[tuple[str, int, int]]:
    rows = page.locator("#subtasks tbody tr").all()
    values = [[field.input_value() for field in row.locator("input").all()] for row in rows]
    return [(name, int(start), int(end)) for name, start, end in values]


@pytest.mark.parametrize("layout", ["recordings", "lerobot"])
def test_two_boundaries_moved_and_success_marked_are_saved_exactly(page, folder, tmp_path, layout):
    if layout == "lerobot":
        assert convert_dataset(open_dataset(folder), tmp_path / "lerobot", NullReporter()) == []
        folder = tmp_path / "lerobot"
    with served(folder) as server:
        opened(page, server)
        assert page.locator("figcaption").all_inner_texts() == list(VIEWS) and edges(page) == [5, 20, 40, 60]
        drag(page, 1, 26, release=False)
        at(page, 26)  # the first frame of the step that begins there
        page.mouse.up()
        drag(page, 2, 33)
        at(page, 33)
        success(page, "yes")
        expect(page.locator("#state")).to_have_text("not saved")
        before = open_dataset(folder).meta[0]
        assert before.success is None and before.subtasks[0].end == 20, "nothing is stored before it is saved"
        save(page)
        page.reload()
        at(page, 0)
        due = [("reach", 5, 26), ("grasp", 26, 33), ("lift", 33, 60)]
        assert edges(page) == [5, 26, 33, 60] and steps_on(page) == due
        expect(page.get_by_role("button", name="yes", exact=True)).to_have_attribute("aria-pressed", "true")
    source = open_dataset(folder)
    assert source.issues == () and stored(folder) == (due, True) and stored(folder, 1) == ([], None)
    episode = source.episode(0)
    assert episode.subtasks == tuple(Subtask(name=name, start=start, end=end) for name, start, end in due)
    assert episode.success is True and len(episode) == LENGTH


def test_what_is_shown_is_the_frame_whose_number_is_told(page, server):
    opened(page, server)
    expected = 0
    for key, step in [("ArrowRight", 1), ("Shift+ArrowRight", 10), ("ArrowLeft", -1), ("Shift+ArrowLeft", -10)] * 2:
        for _ in range(3):
            page.keyboard.press(key)
            expected = min(max(expected + step, 0), LENGTH - 1)
        at(page, expected)
    page.keyboard.press("End")
    at(page, LENGTH - 1)
    page.keyboard.press("Home")
    at(page, 0)
    for due in (5, 20, 40, LENGTH - 1):
        page.keyboard.press("ArrowDown")
        at(page, due)
    page.keyboard.press("ArrowUp")
    at(page, 40)
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    for frame in (7, 48, 13):
        page.mouse.click(box["x"] + box["width"] * (frame + 0.5) / LENGTH, box["y"] + box["height"] - 4)
        at(page, frame)
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    timesteps = []
    while not timesteps or timesteps[-1][0] < LENGTH - 1:
        timesteps.append(seen(page))
    assert all(shown == [frame] * 3 for frame, shown in timesteps) and len({frame for frame, _ in timesteps}) > 5


def test_splitting_naming_merging_removing_and_undoing(page, server, folder):
    opened(page, server)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    at(page, 15)
    page.keyboard.press("s")
    assert steps_on(page) == [("reach", 5, 15), ("subtask 4", 15, 20), ("grasp", 20, 40), ("lift", 40, 60)]
    page.keyboard.press("Enter")
    page.keyboard.type("close in, slowly")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")  # keys are keys again
    at(page, 16)
    page.keyboard.press("[")
    assert steps_on(page)[:2] == [("reach", 5, 16), ("close in, slowly", 16, 20)]
    page.keyboard.press("ArrowDown")
    at(page, 20)
    page.keyboard.press("]")
    assert steps_on(page)[2:] == [("grasp", 20, 21), ("lift", 21, 60)]
    page.keyboard.press("Delete")  # grasp goes into the step before
    assert steps_on(page) == [("reach", 5, 16), ("close in, slowly", 16, 21), ("lift", 21, 60)]
    page.keyboard.down("Alt")
    drag(page, 2, 30)
    page.keyboard.up("Alt")
    gap = [("reach", 5, 16), ("close in, slowly", 16, 21), ("lift", 30, 60)]
    assert steps_on(page) == gap
    page.keyboard.press("Home")
    at(page, 0)
    page.keyboard.press("s")  # before the first step: one that lasts until it begins
    assert steps_on(page) == [("subtask 4", 0, 5), *gap]
    page.keyboard.press("Shift+Delete")
    assert steps_on(page) == gap
    page.locator(".edge").nth(3).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    at(page, 28)
    page.get_by_label("end of subtask 3").fill("58")
    page.keyboard.press("Tab")
    assert steps_on(page)[2] == ("lift", 28, 58)
    page.keyboard.press("Escape")
    save(page)
    assert stored(folder) == ([("reach", 5, 16), ("close in, slowly", 16, 21), ("lift", 28, 58)], None)
    for _ in range(20):
        page.keyboard.press("Control+z")
    assert steps_on(page) == [tuple(step.values()) for step in STEPS]
    for _ in range(20):
        page.keyboard.press("Control+Shift+Z")
    assert steps_on(page)[2] == ("lift", 28, 58)
    expect(page.locator("#state")).to_have_text("saved")


def test_a_boundary_stops_at_its_neighbors(page, server):
    opened(page, server)
    drag(page, 1, 55)
    assert edges(page) == [5, 39, 40, 60]
    drag(page, 0, -10)
    assert edges(page) == [0, 39, 40, 60]
    drag(page, 3, 2)
    assert edges(page) == [0, 39, 40, 41]


def test_proposals_bear_the_names_and_are_stored_when_they_are_saved(page, folder):
    names = ("reach", "put it away")
    with served(folder, names) as server:
        page.goto(f"{server.url}#1")
        expect(page.locator("#state")).to_have_text("proposed, not saved")
        proposed = steps_on(page)
        assert [name for name, _, _ in proposed] == list(names) and stored(folder, 1) == ([], None)
        page.keyboard.press("PageUp")  # a proposal that nobody has touched is left without a question
        expect(page.locator("#name")).to_have_text("cup_0")
        page.keyboard.press("PageDown")
        expect(page.locator("#state")).to_have_text("proposed, not saved")
        page.keyboard.press("n")
        expect(page.locator("#state")).to_have_text("not saved")
        page.keyboard.press("Control+s")
        expect(page.locator("#state")).to_have_text("saved")
        expect(page.locator("#count")).to_have_text("2 of 2 with subtasks")
    assert stored(folder, 1) == (proposed, False)


def test_of_two_tabs_the_later_is_refused_and_keeps_its_changes(page, server, folder):
    opened(page, server)
    other = opened(page.context.new_page(), server)
    drag(page, 1, 25)
    save(page)
    drag(other, 1, 12)
    success(other, "no")
    other.keyboard.press("Control+s")
    expect(other.locator("#message")).to_contain_text("Not saved. cup_0: was saved by another client")
    expect(other.locator("#state")).to_have_text("not saved")
    assert edges(other) == [5, 12, 40, 60] and stored(folder)[0][0] == ("reach", 5, 25)
    other.get_by_role("button", name="load what is stored").click()
    expect(other.locator("#state")).to_have_text("saved")
    assert edges(other) == [5, 25, 40, 60]
    other.keyboard.press("n")
    save(other)
    assert stored(folder) == ([("reach", 5, 25), ("grasp", 25, 40), ("lift", 40, 60)], False)


def test_a_save_that_is_late_leaves_the_next_episode_alone(page, server, folder):
    page.goto(f"{server.url}#1")
    expect(page.locator("#state")).to_have_text("proposed, not saved")
    with server.session._write_lock:
        page.keyboard.press("Control+s")
        expect(page.locator("#state")).to_have_text("saving …")
        page.keyboard.press("PageUp")
        expect(page.locator("#name")).to_have_text("cup_0")
    expect(page.locator("#count")).to_have_text("2 of 2 with subtasks")
    expect(page.locator("#state")).to_have_text("saved")
    page.keyboard.press("y")
    save(page)
    assert stored(folder) == ([tuple(step.values()) for step in STEPS], True) and stored(folder, 1)[0] != []


def test_steps_that_make_no_sense_are_refused_in_our_sentence(page, server, folder):
    opened(page, server)
    page.get_by_label("name of subtask 2").fill("  ")
    page.keyboard.press("Control+s")
    expect(page.locator("#message")).to_have_text("Not saved. subtask 2 is named '  '; a line of text was expected")
    expect(page.locator("#state")).to_have_text("not saved")
    assert stored(folder)[0] == [tuple(step.values()) for step in STEPS]


def test_nobody_leaves_unsaved_without_being_asked(page, server, folder):
    opened(page, server)
    page.keyboard.press("y")
    page.locator("#episodes button").nth(1).click()
    page.get_by_role("button", name="Stay").click()
    expect(page.locator("#name")).to_have_text("cup_0")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.close(run_before_unload=True)
    page.wait_for_timeout(300)
    assert asked == ["beforeunload"] and not page.is_closed()
    page.locator("#episodes button").nth(1).click()
    page.locator("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("#name")).to_have_text("cup_1")
    assert stored(folder)[1] is True
    expect(page.locator("#state")).to_have_text("proposed, not saved")
    page.keyboard.press("y")
    page.keyboard.press("PageUp")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#name")).to_have_text("cup_0")
    assert stored(folder, 1) == ([], None)


def test_a_frame_that_cannot_be_read_is_told_and_the_number_stays(page, server, folder):
    opened(page, server)
    video = folder / "cup_0" / "right.mp4"
    video.write_bytes(video.read_bytes()[:2000])
    page.keyboard.press("End")
    expect(page.locator("#message")).to_contain_text(f"{video}: the video is cut short")
    assert seen(page) == (0, [0] * 3)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of a page of another origin."""

    class Blank(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><link rel=icon href=data:,><title>elsewhere</title>")

        def log_message(self, *args: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Blank) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{other.server_port}/"
        other.shutdown()
        thread.join()


ATTACK = """async ([url, body, version]) => {
    const tried = [];
    for (const options of [{ method: "PUT", headers: { "Content-Type": "application/json", "If-Match": version } },
                           { method: "PUT", mode: "no-cors" }, { method: "POST", mode: "no-cors" },
                           { method: "POST" }]) {
        try { tried.push((await fetch(url + "episodes/0", { ...options, body })).type); }
        catch (error) { tried.push("refused"); }
    }
    for (const what of ["dataset", "frames/0/0/0"])
        try { await (await fetch(url + what)).text(); tried.push("read"); } catch { tried.push("refused"); }
    const image = new Image();
    tried.push(await new Promise((resolve) => {
        [image.onload, image.onerror] = [() => resolve("read"), () => resolve("refused")];
        image.src = url + "frames/0/0/0";
    }));
    return tried;
}"""


def test_a_page_elsewhere_reads_and_writes_nothing_even_if_it_knows_the_token(browser, server, folder, elsewhere):
    page = browser.new_page()
    page.goto(elsewhere)
    told = {"subtasks": [], "success": True}
    version = server.session.read_annotation(0).version
    tried = page.evaluate(ATTACK, [server.url, json.dumps(told), version])
    assert set(tried) <= {"refused", "opaque"} and tried[-3:] == ["refused"] * 3
    assert stored(folder) == ([tuple(step.values()) for step in STEPS], None)
    page.evaluate(
        "(url) => document.body.append(Object.assign(document.createElement('iframe'), { src: url }))", server.url
    )
    page.wait_for_timeout(500)
    inside = page.frames[1]
    assert inside.locator("#timeline").count() == 0, "a frame elsewhere shows nothing that could be clicked"
    page.close()


def test_without_a_browser_the_tests_are_left_out_here_and_fail_where_every_change_must_pass(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no chromium"):
        chromium()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"CONTRIBUTING\.md says how to get it"):
        chromium()
