"""The annotation page in a real browser: edits on the page end up in the dataset."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_envs import LENGTH, SUBTASK_ENTRIES, VIEWS, read_number, serve_dataset
from browsers import find_chromium
from playwright.sync_api import Page, expect
from server_threads import serve_in_thread

from embodied_rm.annotate.annotation_server import AnnotationServer
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Subtask

expect.set_options(timeout=20_000)  # next to other tests a browser is slow

READ_PAGE_JS = """() => ({ frame: +document.body.dataset.frame, text: document.querySelector("#readout b").textContent,
    rows: [...document.querySelectorAll("canvas")].map((c) =>
        [...c.getContext("2d").getImageData(0, c.height / 2, c.width, 1).data]) })"""
"""Frame number displayed by the page, and a row of pixels of every view, read at the same time."""


def read_page(page: Page) -> tuple[int, list[int]]:
    """Return the displayed frame number, and the frame numbers painted into the views."""
    page_state = page.evaluate(READ_PAGE_JS)
    assert page_state["text"] == f"frame {page_state['frame']}"
    painted = [read_number(np.array(row, np.uint8).reshape(1, -1, 4)) for row in page_state["rows"]]
    return page_state["frame"], [number - first for number, first in zip(painted, VIEWS.values(), strict=True)]


def wait_for_frame(page: Page, frame: int) -> None:
    """Wait until the page displays a frame, and check all its views."""
    page.locator(f'body[data-frame="{frame}"]').wait_for(timeout=10_000)
    assert read_page(page) == (frame, [frame] * 3)


def open_page(page: Page, server: AnnotationServer) -> Page:
    page.goto(server.url)
    wait_for_frame(page, 0)
    return page


def read_boundaries(page: Page) -> list[int]:
    return [int(str(edge.get_attribute("aria-valuenow"))) for edge in page.locator(".edge").all()]


def drag_boundary(page: Page, boundary: int, to: int, *, release: bool = True) -> None:
    """Drag a boundary to a frame."""
    timeline, edge = page.locator("#timeline").bounding_box(), page.locator(".edge").nth(boundary).bounding_box()
    assert timeline is not None and edge is not None
    y, start_x = edge["y"] + edge["height"] / 2, edge["x"] + edge["width"] / 2
    target_x = timeline["x"] + timeline["width"] * to / LENGTH
    page.mouse.move(start_x, y)
    page.mouse.down()
    page.mouse.move((start_x + target_x) / 2, y, steps=3)
    page.mouse.move(target_x, y, steps=3)
    if release:
        page.mouse.up()


def set_success(page: Page, label: str) -> None:
    page.get_by_role("button", name=label, exact=True).click()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).first.click()
    expect(page.locator("#state")).to_have_text("saved")


def stored_annotation(folder: Path, index: int = 0) -> tuple[list[tuple[str, int, int]], bool | None]:
    meta = open_dataset(folder).meta[index]
    return [(subtask.name, subtask.start, subtask.end) for subtask in meta.subtasks], meta.success


def read_subtasks(page: Page) -> list[tuple[str, int, int]]:
    rows = page.locator("#subtasks tbody tr").all()
    values = [[field.input_value() for field in row.locator("input").all()] for row in rows]
    return [(name, int(start), int(end)) for name, start, end in values]


@pytest.mark.parametrize("layout", ["recordings", "lerobot"])
def test_moved_boundaries_and_success_are_saved_exactly(page, folder, tmp_path, layout):
    if layout == "lerobot":
        assert convert_dataset(open_dataset(folder), tmp_path / "lerobot", NullReporter()) == []
        folder = tmp_path / "lerobot"
    with serve_dataset(folder) as server:
        open_page(page, server)
        assert page.locator("figcaption").all_inner_texts() == list(VIEWS) and read_boundaries(page) == [5, 20, 40, 60]
        drag_boundary(page, 1, 26, release=False)
        wait_for_frame(page, 26)  # the first frame of the subtask that starts there
        page.mouse.up()
        drag_boundary(page, 2, 33)
        wait_for_frame(page, 33)
        set_success(page, "yes")
        expect(page.locator("#state")).to_have_text("not saved")
        before = open_dataset(folder).meta[0]
        assert before.success is None and before.subtasks[0].end == 20, "nothing is stored before it is saved"
        save(page)
        page.reload()
        wait_for_frame(page, 0)
        expected = [("reach", 5, 26), ("grasp", 26, 33), ("lift", 33, 60)]
        assert read_boundaries(page) == [5, 26, 33, 60] and read_subtasks(page) == expected
        expect(page.get_by_role("button", name="yes", exact=True)).to_have_attribute("aria-pressed", "true")
    source = open_dataset(folder)
    assert (
        source.issues == ()
        and stored_annotation(folder) == (expected, True)
        and stored_annotation(folder, 1) == ([], None)
    )
    episode = source.episode(0)
    assert episode.subtasks == tuple(Subtask(name=name, start=start, end=end) for name, start, end in expected)
    assert episode.success is True and len(episode) == LENGTH


def test_displayed_image_matches_the_displayed_number(page, server):
    open_page(page, server)
    expected = 0
    for key, step in [("ArrowRight", 1), ("Shift+ArrowRight", 10), ("ArrowLeft", -1), ("Shift+ArrowLeft", -10)] * 2:
        for _ in range(3):
            page.keyboard.press(key)
            expected = min(max(expected + step, 0), LENGTH - 1)
        wait_for_frame(page, expected)
    page.keyboard.press("End")
    wait_for_frame(page, LENGTH - 1)
    page.keyboard.press("Home")
    wait_for_frame(page, 0)
    for expected in (5, 20, 40, LENGTH - 1):
        page.keyboard.press("ArrowDown")
        wait_for_frame(page, expected)
    page.keyboard.press("ArrowUp")
    wait_for_frame(page, 40)
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    for frame in (7, 48, 13):
        page.mouse.click(box["x"] + box["width"] * (frame + 0.5) / LENGTH, box["y"] + box["height"] - 4)
        wait_for_frame(page, frame)
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    timesteps, deadline_s = [], time.monotonic() + 60
    while not timesteps or timesteps[-1][0] < LENGTH - 1:
        assert time.monotonic() < deadline_s
        timesteps.append(read_page(page))
    assert (
        all(painted_frames == [frame] * 3 for frame, painted_frames in timesteps)
        and len({frame for frame, _ in timesteps}) > 5
    )


def test_split_rename_merge_remove_and_undo(page, server, folder):
    open_page(page, server)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    wait_for_frame(page, 15)
    page.keyboard.press("s")
    assert read_subtasks(page) == [("reach", 5, 15), ("subtask 4", 15, 20), ("grasp", 20, 40), ("lift", 40, 60)]
    page.keyboard.press("Enter")
    page.keyboard.type("close in, slowly")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")  # keys are shortcuts again
    wait_for_frame(page, 16)
    page.keyboard.press("[")
    assert read_subtasks(page)[:2] == [("reach", 5, 16), ("close in, slowly", 16, 20)]
    page.keyboard.press("ArrowDown")
    wait_for_frame(page, 20)
    page.keyboard.press("]")
    assert read_subtasks(page)[2:] == [("grasp", 20, 21), ("lift", 21, 60)]
    page.keyboard.press("Delete")  # grasp is merged into the previous subtask
    assert read_subtasks(page) == [("reach", 5, 16), ("close in, slowly", 16, 21), ("lift", 21, 60)]
    page.keyboard.down("Alt")
    drag_boundary(page, 2, 30)
    page.keyboard.up("Alt")
    gap = [("reach", 5, 16), ("close in, slowly", 16, 21), ("lift", 30, 60)]
    assert read_subtasks(page) == gap
    page.keyboard.press("Home")
    wait_for_frame(page, 0)
    page.keyboard.press("s")  # before the first subtask: a new one up to its start
    assert read_subtasks(page) == [("subtask 4", 0, 5), *gap]
    page.keyboard.press("Shift+Delete")
    assert read_subtasks(page) == gap
    page.locator(".edge").nth(3).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    wait_for_frame(page, 28)
    page.get_by_label("end of subtask 3").fill("58")
    page.keyboard.press("Tab")
    assert read_subtasks(page)[2] == ("lift", 28, 58)
    page.keyboard.press("Escape")
    save(page)
    assert stored_annotation(folder) == ([("reach", 5, 16), ("close in, slowly", 16, 21), ("lift", 28, 58)], None)
    for _ in range(20):
        page.keyboard.press("Control+z")
    assert read_subtasks(page) == [tuple(subtask.values()) for subtask in SUBTASK_ENTRIES]
    for _ in range(20):
        page.keyboard.press("Control+Shift+Z")
    assert read_subtasks(page)[2] == ("lift", 28, 58)
    expect(page.locator("#state")).to_have_text("saved")


def test_boundary_stops_at_its_neighbors(page, server):
    open_page(page, server)
    drag_boundary(page, 1, 55)
    assert read_boundaries(page) == [5, 39, 40, 60]
    drag_boundary(page, 0, -10)
    assert read_boundaries(page) == [0, 39, 40, 60]
    drag_boundary(page, 3, 2)
    assert read_boundaries(page) == [0, 39, 40, 41]


def test_proposals_use_the_names_and_are_stored_on_save(page, folder):
    names = ("reach", "put it away")
    with serve_dataset(folder, names) as server:
        page.goto(f"{server.url}#1")
        expect(page.locator("#state")).to_have_text("proposed, not saved")
        proposed = read_subtasks(page)
        assert [name for name, _, _ in proposed] == list(names) and stored_annotation(folder, 1) == ([], None)
        page.keyboard.press("PageUp")  # an unedited proposal is left without a dialog
        expect(page.locator("#name")).to_have_text("cup_0")
        page.keyboard.press("PageDown")
        expect(page.locator("#state")).to_have_text("proposed, not saved")
        page.keyboard.press("n")
        expect(page.locator("#state")).to_have_text("not saved")
        page.keyboard.press("Control+s")
        expect(page.locator("#state")).to_have_text("saved")
        expect(page.locator("#count")).to_have_text("2 of 2 with subtasks")
    assert stored_annotation(folder, 1) == (proposed, False)


def test_conflicting_save_of_a_second_tab_is_rejected_and_keeps_its_changes(page, server, folder):
    open_page(page, server)
    other = open_page(page.context.new_page(), server)
    drag_boundary(page, 1, 25)
    save(page)
    drag_boundary(other, 1, 12)
    set_success(other, "no")
    other.keyboard.press("Control+s")
    expect(other.locator("#message")).to_contain_text("Not saved. cup_0: was saved by another client")
    expect(other.locator("#state")).to_have_text("not saved")
    assert read_boundaries(other) == [5, 12, 40, 60] and stored_annotation(folder)[0][0] == ("reach", 5, 25)
    other.get_by_role("button", name="load what is stored").click()
    expect(other.locator("#state")).to_have_text("saved")
    assert read_boundaries(other) == [5, 25, 40, 60]
    other.keyboard.press("n")
    save(other)
    assert stored_annotation(folder) == ([("reach", 5, 25), ("grasp", 25, 40), ("lift", 40, 60)], False)


def test_late_save_does_not_change_the_next_episode(page, server, folder):
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
    assert (
        stored_annotation(folder) == ([tuple(subtask.values()) for subtask in SUBTASK_ENTRIES], True)
        and stored_annotation(folder, 1)[0] != []
    )


def test_invalid_subtasks_display_the_error_of_the_server(page, server, folder):
    open_page(page, server)
    page.get_by_label("name of subtask 2").fill("  ")
    page.keyboard.press("Control+s")
    expect(page.locator("#message")).to_have_text("Not saved. subtask 2 is named '  '; a line of text was expected")
    expect(page.locator("#state")).to_have_text("not saved")
    assert stored_annotation(folder)[0] == [tuple(subtask.values()) for subtask in SUBTASK_ENTRIES]


def test_leaving_unsaved_changes_asks_for_confirmation(page, server, folder):
    open_page(page, server)
    page.keyboard.press("y")
    page.locator("#episodes button").nth(1).click()
    page.get_by_role("button", name="Stay").click()
    expect(page.locator("#name")).to_have_text("cup_0")
    dialog_types: list[str] = []
    page.once("dialog", lambda dialog: (dialog_types.append(dialog.type), dialog.dismiss()))
    page.close(run_before_unload=True)
    page.wait_for_timeout(300)
    assert dialog_types == ["beforeunload"] and not page.is_closed()
    page.locator("#episodes button").nth(1).click()
    page.locator("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("#name")).to_have_text("cup_1")
    assert stored_annotation(folder)[1] is True
    expect(page.locator("#state")).to_have_text("proposed, not saved")
    page.keyboard.press("y")
    page.keyboard.press("PageUp")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#name")).to_have_text("cup_0")
    assert stored_annotation(folder, 1) == ([], None)


def test_unreadable_frame_displays_an_error(page, server, folder):
    open_page(page, server)
    video = folder / "cup_0" / "right.mp4"
    video.write_bytes(video.read_bytes()[:2000])
    page.keyboard.press("End")
    expect(page.locator("#message")).to_contain_text(f"{video}: the video is cut short")
    assert read_page(page) == (0, [0] * 3)


@pytest.fixture
def other_origin() -> Iterator[str]:
    """URL of a page with another origin."""

    class Blank(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!DOCTYPE html><link rel=icon href=data:,><title>elsewhere</title>")

        def log_message(self, *args: Any) -> None:
            return

    other = HTTPServer(("127.0.0.1", 0), Blank)
    with serve_in_thread(other):
        yield f"http://127.0.0.1:{other.server_port}/"


ATTACK = """async ([url, body, version]) => {
    const results = [];
    for (const options of [{ method: "PUT", headers: { "Content-Type": "application/json", "If-Match": version } },
                           { method: "PUT", mode: "no-cors" }, { method: "POST", mode: "no-cors" },
                           { method: "POST" }]) {
        try { results.push((await fetch(url + "episodes/0", { ...options, body })).type); }
        catch (error) { results.push("refused"); }
    }
    for (const path of ["dataset", "frames/0/0/0"])
        try { await (await fetch(url + path)).text(); results.push("read"); } catch { results.push("refused"); }
    const image = new Image();
    results.push(await new Promise((resolve) => {
        [image.onload, image.onerror] = [() => resolve("read"), () => resolve("refused")];
        image.src = url + "frames/0/0/0";
    }));
    return results;
}"""


def test_cross_origin_page_with_the_token_cannot_read_or_write(browser, server, folder, other_origin):
    page = browser.new_page()
    page.goto(other_origin)
    payload = {"subtasks": [], "success": True}
    version = server.session.store.read(0).version
    results = page.evaluate(ATTACK, [server.url, json.dumps(payload), version])
    assert set(results) <= {"refused", "opaque"} and results[-3:] == ["refused"] * 3
    assert stored_annotation(folder) == ([tuple(subtask.values()) for subtask in SUBTASK_ENTRIES], None)
    page.evaluate(
        "(url) => document.body.append(Object.assign(document.createElement('iframe'), { src: url }))", server.url
    )
    page.wait_for_timeout(500)
    frame_page = page.frames[1]
    assert frame_page.locator("#timeline").count() == 0, "a frame other_origin shows nothing that could be clicked"
    page.close()


def test_missing_browser_skips_tests_and_fails_on_ci(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no chromium"):
        find_chromium()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"CONTRIBUTING\.md says how to get it"):
        find_chromium()
