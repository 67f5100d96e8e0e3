"""`report.html` is self-contained, makes no network requests, and holds all data."""

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import av
import numpy as np
import pytest

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.experiments.episode_panel import MAX_FRAMES_WITH_STEPS, MAX_PANEL_FRAMES, episode_panel
from embodied_rm.labels.true_progress import progress_or_none
from embodied_rm.report import (
    EpisodePanel,
    KeyMetric,
    LineChart,
    Report,
    ReportCase,
    SuccessRate,
    TaskSuccess,
    write_report,
)
from embodied_rm.report.episode_images import CLIP_HEIGHT_PX, concat_horizontal, encode_episode
from embodied_rm.score.visualize import display_size
from embodied_rm.types import Episode, Subtask

UNSAFE_TEXT = 'lift </script><img src=http://x.y/z onerror=alert(1)> & "it\'s"'


class ParsedPage(HTMLParser):
    """Elements with attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.current_tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.current_tag = tag

    def handle_endtag(self, tag: str) -> None:
        self.current_tag = ""

    def handle_data(self, data: str) -> None:
        if self.current_tag == "script":
            self.scripts.append(data)


def episode(length: int = 12, **fields: object) -> Episode:
    rng = np.random.default_rng(0)
    shades = np.linspace(0, 255, length, dtype=np.uint8)[:, None, None, None]
    return Episode(
        **{
            "name": "episode_000003",
            "views": {
                "front": np.broadcast_to(shades, (length, 64, 64, 3)).copy(),
                "wrist": rng.integers(0, 255, (length, 48, 80, 3)).astype(np.uint8),
            },
            "instruction": UNSAFE_TEXT,
            "fps": 20.0,
            "subtasks": (Subtask(name="reach", start=0, end=5), Subtask(name="grasp", start=5, end=length)),
            "success": True,
            "progress": np.linspace(0, 1, length, dtype=np.float32),
            "metadata": {"outcome": "success"},
            **fields,
        }
    )


def full_report() -> Report:
    panel = EpisodePanel(
        episode=episode(), progress=np.linspace(0, 0.9, 12, dtype=np.float32), success_prob=np.zeros(12, np.float32)
    )
    unlabeled = episode(subtasks=(), success=None, progress=None, metadata={})
    return Report(
        title="The loop <end to end>",
        subtitle="what it did",
        key_metrics=(KeyMetric(label="order correlation", value=0.97, target="at least 0.95", passed=True),),
        cases=(
            ReportCase(
                name="negated",
                procedure="<b>",
                metric="share",
                expected="at most 1",
                value=0.5,
                num_trials=2,
                passed=False,
            ),
        ),
        success_rates=(
            TaskSuccess(
                task="lift_cube",
                rates={
                    "cloned": SuccessRate(value=0.4, low=0.33, high=0.47, episodes=200),
                    "refined": SuccessRate(value=0.98, low=0.95, high=0.99, episodes=200),
                },
            ),
        ),
        charts=(LineChart(title="lift_cube", x_label="iteration", series={"success": [0.1, None, float("nan"), 0.9]}),),
        episodes=(panel, EpisodePanel(episode=unlabeled, progress=np.zeros(12, np.float32))),
        details={"seed": 0},
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, full_report())
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(text: str) -> dict:
    return json.loads(ParsedPage(text).scripts[0])


def test_page_makes_no_network_requests(text: str) -> None:
    for tag, attributes in ParsedPage(text).elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        assert not {"src", "href", "srcset"} & set(attributes)
    outside_data = text.replace(ParsedPage(text).scripts[0], "")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttpRequest", outside_data)
    assert "default-src 'none'" in text


def test_text_from_a_dataset_is_escaped(text: str, data: dict) -> None:
    assert data["episodes"][0]["instruction"] == UNSAFE_TEXT
    assert len(ParsedPage(text).scripts) == 2
    assert not any(tag == "img" for tag, _ in ParsedPage(text).elements)
    assert "<title>The loop &lt;end to end&gt;</title>" in text


def test_page_holds_all_data(data: dict) -> None:
    report = full_report()
    assert data["key_metrics"][0] == {
        "label": "order correlation",
        "value": 0.97,
        "target": "at least 0.95",
        "passed": True,
    }
    case = {"name": "negated", "procedure": "<b>", "metric": "share", "expected": "at most 1", "note": ""}
    assert data["cases"] == [{**case, "value": 0.5, "num_trials": 2, "passed": False}]
    assert data["success_rates"][0]["rates"]["refined"] == {"value": 0.98, "low": 0.95, "high": 0.99, "episodes": 200}
    assert data["charts"][0]["series"]["success"] == [0.1, None, None, 0.9]
    panel = data["episodes"][0]
    assert [subtask["name"] for subtask in panel["subtasks"]] == ["reach", "grasp"]
    np.testing.assert_allclose(panel["progress"], report.episodes[0].progress, atol=1e-4)
    np.testing.assert_allclose(panel["true_progress"], report.episodes[0].episode.progress, atol=1e-4)
    assert data["episodes"][1]["true_progress"] is None and data["episodes"][1]["success"] is None


def test_video_has_every_frame_and_view(data: dict) -> None:
    clip = io.BytesIO(base64.b64decode(data["episodes"][0]["video"]))
    with av.open(clip) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 12
    assert frames[0].shape == (CLIP_HEIGHT_PX, CLIP_HEIGHT_PX + 4 + CLIP_HEIGHT_PX * 80 // 48, 3)
    shades = [frame[:, : CLIP_HEIGHT_PX - 8].mean() for frame in frames]
    np.testing.assert_allclose(shades, np.linspace(0, 255, 12), atol=4)


def test_views_are_concatenated_horizontally() -> None:
    left, right = np.full((2, 4, 6, 3), 1, np.uint8), np.full((2, 4, 8, 3), 2, np.uint8)
    row = concat_horizontal([left, right])
    assert row.shape == (2, 4, 6 + 4 + 8, 3)
    assert (row[:, :, :6] == 1).all() and (row[:, :, 6:10] == 0).all() and (row[:, :, 10:] == 2).all()


def test_empty_report_is_valid(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", Report(title="nothing yet"))
    assert json.loads(ParsedPage((tmp_path / "report.html").read_text()).scripts[0])["episodes"] == []


def test_curve_of_wrong_length_is_rejected() -> None:
    with pytest.raises(UserError, match=r"progress has 3 rows, the video has 12 frames"):
        EpisodePanel(episode=episode(), progress=np.zeros(3, np.float32))


def test_rate_outside_its_interval_is_rejected() -> None:
    with pytest.raises(UserError, match="low <= value <= high"):
        SuccessRate(value=0.5, low=0.6, high=0.7, episodes=10)


def test_a_long_episode_is_thinned_whatever_its_subtasks_are(tmp_path: Path) -> None:
    """One subtask of one frame put all frames into memory: 4 GB of 30,000."""
    length = 2410
    spans = {"reach": (0, 1), "grasp": (1, 2), "place": (2, length)}
    steps = tuple(Subtask(name=name, start=start, end=end) for name, (start, end) in spans.items())
    shades = np.linspace(0, 255, length, dtype=np.uint8)[:, None, None, None]
    views = {"front": np.broadcast_to(shades, (length, 16, 16, 3)).copy()}
    with DatasetWriter(tmp_path / "data") as writer:
        writer.add(episode(views=views, subtasks=steps, progress=None))
    source = open_dataset(tmp_path / "data")
    panel, whole, kept = episode_panel(source, 0), source.episode(0), [*range(0, length, 2), length - 1]
    assert MAX_PANEL_FRAMES < len(panel.episode) == len(kept) <= MAX_FRAMES_WITH_STEPS
    assert panel.episode.fps == source.fps / 2
    assert [(s.name, s.start, s.end) for s in panel.episode.subtasks] == [("reach", 0, 1), ("place", 1, len(kept))]
    np.testing.assert_array_equal(panel.episode.views["front"], whole.views["front"][kept])
    np.testing.assert_array_equal(panel.episode.progress, progress_or_none(whole)[kept])


@pytest.mark.parametrize("size", [(2, 8192), (8192, 2), (300, 9000)])
def test_images_of_extreme_proportions_are_squeezed(size: tuple[int, int]) -> None:
    """One of 4 by 32000 pixels became a clip of 192 by 1.5 million."""
    clip = encode_episode(episode(views={"front": np.zeros((12, *size, 3), np.uint8)}))
    with av.open(io.BytesIO(clip)) as container:
        stream = container.streams.video[0]
        assert (stream.height, stream.width) == (CLIP_HEIGHT_PX, 2 if size[1] == 2 else 8 * CLIP_HEIGHT_PX)


def test_videos_of_scores_show_images_of_extreme_proportions() -> None:
    assert display_size((4, 32000), 1) == (2, 480) and display_size((32000, 4), 1) == (8 * 480, 480)
    assert display_size((96, 128), 2) == (180, 240)
