"""The contact sheet of `inspect` shows the images of a dataset as commands read them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from browsers import browser, page  # noqa: F401  (fixtures)
from painted_frames import make_episode
from PIL import Image
from playwright.sync_api import Page
from test_hdf5 import write_robomimic

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.experiments.episode_panel import SHEET_HEIGHT_PX
from embodied_rm.report.episode_images import GAP_PX, LINE_HEIGHT_PX, ContactSheetRow, draw_contact_sheet
from embodied_rm.types import Frames

ROW_PX = SHEET_HEIGHT_PX + GAP_PX + LINE_HEIGHT_PX


def read_sheet(content: bytes | Path) -> Frames:
    return np.asarray(Image.open(io.BytesIO(content) if isinstance(content, bytes) else content))


def cell(sheet: Frames, row: int, left: int, width: int) -> Frames:
    top = 2 * LINE_HEIGHT_PX + row * ROW_PX
    return sheet[top : top + SHEET_HEIGHT_PX, left : left + width]


def test_images_of_different_sizes_are_placed_in_a_grid() -> None:
    red, blue = np.full((40, 60, 3), (200, 0, 0), np.uint8), np.full((20, 100, 3), (0, 0, 200), np.uint8)
    rows = [ContactSheetRow(caption=str(i), views={"a": red, "b": blue[:, : 50 * (i + 1)]}) for i in range(2)]
    sheet = read_sheet(draw_contact_sheet(rows))
    assert sheet.shape == (LINE_HEIGHT_PX + 2 * (LINE_HEIGHT_PX + 40 + GAP_PX), 60 + 100 + 3 * GAP_PX, 3)
    for row, width in ((0, 50), (1, 100)):
        top = 2 * LINE_HEIGHT_PX + row * (LINE_HEIGHT_PX + 40 + GAP_PX)
        assert (sheet[top : top + 40, GAP_PX : GAP_PX + 60] == red).all()
        left = 60 + 2 * GAP_PX
        assert (sheet[top : top + 20, left : left + width] == blue[:, :width]).all()
        assert (sheet[top : top + 20, left + width + GAP_PX :] == 255).all()


def test_inspect_shows_first_middle_and_last_frames(tmp_path: Path) -> None:
    """Of episodes from the first to the last one; images have a shade per frame and are brighter at the top."""
    shades = np.linspace(20, 160, 21).astype(np.uint8)[:, None, None, None]
    frames = np.broadcast_to(shades, (21, 48, 64, 3)).copy()
    frames[:, :24] += 80
    with DatasetWriter(tmp_path / "data") as writer:
        for index in range(5):
            views = {"front": frames[:, ::-1] if index == 4 else frames, "wrist": frames[:, :, :32]}
            writer.add(replace(make_episode(index, 21), views=views))
    out = tmp_path / "run"
    assert main(["inspect", f"data={tmp_path / 'data'}", f"out={out}", "report_episodes=3", "decode=false"]) == 0
    sheet = read_sheet(out / "contact_sheet.png").astype(int)
    widths = [160] * 3 + [80] * 3
    lefts = np.cumsum([GAP_PX, *(width + GAP_PX for width in widths)])
    assert sheet.shape == (LINE_HEIGHT_PX + 3 * ROW_PX, lefts[-1], 3)
    for row in range(3):  # episodes 0, 2 and 4
        for column, shade in enumerate((20, 90, 160) * 2):
            image = cell(sheet, row, lefts[column], widths[column])
            top, bottom = image[:50].mean(), image[-50:].mean()
            upside_down = row == 2 and column < 3
            np.testing.assert_allclose((bottom, top) if upside_down else (top, bottom), (shade + 80, shade), atol=3)


def test_inspect_shows_images_as_they_are_turned(tmp_path: Path) -> None:
    data = write_robomimic(tmp_path / "lift.hdf5")
    sheets = []
    for name, orientation in (("stored", "stored"), ("flip", "flip")):
        words = [f"data={data}", f"out={tmp_path / name}", f"features.orientation={{agentview: {orientation}}}"]
        assert main(["inspect", *words, "decode=false"]) == 0
        sheets.append(read_sheet(tmp_path / name / "contact_sheet.png").astype(int))
    stored, flipped = (cell(sheet, 0, GAP_PX, 160) for sheet in sheets)
    assert np.abs(flipped[::-1] - stored).mean() < 1 < np.abs(flipped - stored).mean()


def test_the_report_shows_the_sheet(tmp_path: Path, page: Page) -> None:  # noqa: F811
    with DatasetWriter(tmp_path / "data") as writer:
        writer.add(make_episode(0))
    assert main(["inspect", f"data={tmp_path / 'data'}", f"out={tmp_path / 'run'}"]) == 0
    page.goto(f"file://{tmp_path / 'run' / 'report.html'}")
    size = page.evaluate("async () => { const image = document.querySelector('img.sheet'); await image.decode();"
                         " return [image.naturalHeight, image.naturalWidth]; }")  # fmt: skip
    assert size == list(read_sheet(tmp_path / "run" / "contact_sheet.png").shape[:2])
