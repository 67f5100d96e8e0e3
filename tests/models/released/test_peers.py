"""What the code of the models' authors does beyond the network: which frames, which settings, which recursion."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import LocalChat
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.released.lrm import LrmChat
from embodied_rm.models.released.rewind import RewindChat, RewindQuestion, interpolate_position_embeddings
from embodied_rm.models.released.robo_dopamine import PIXEL_LIMITS, RoboDopamineQuestion
from embodied_rm.models.released.robometer import RobometerChat, RobometerQuestion
from embodied_rm.models.released.vlac import VlacChat

Layout = Callable[[str], dict[str, Path]]


def frame(value: int) -> MultiViewFrame:
    return MultiViewFrame(np.full((1, 4, 4, 3), value, np.uint8), np.ones(1, bool))


def context_of(length: int) -> EpisodeContext:
    """An episode at its frame `length - 1`; each frame has its number as its color."""
    history = FrameHistory(capacity=64)
    for index in range(length - 1):
        history = history.append(frame(index))
    start, current = frame(0), frame(length - 1)
    return EpisodeContext(
        instruction="go", view_names=("front",), history=history, first=start, previous=start, current=current
    )


def frame_numbers(query: Query) -> list[int]:
    return [int(part[0, 0, 0]) for part in query.parts if not isinstance(part, str)]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (23, [0, 1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22]),
        (17, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16]),
        (16, list(range(16))),
        (3, [0, 1, 2]),
        (1, [0]),
    ],
)
def test_rewind_gets_the_frames_of_a_truncated_grid(length: int, expected: list[int]) -> None:
    """The offline labels show all frames so far; the online reward has one more, which precedes every action."""
    (offline,) = RewindQuestion(offline=True).build_queries(context_of(length))
    assert frame_numbers(offline) == expected
    (online,) = RewindQuestion().build_queries(context_of(length + 1))
    assert frame_numbers(online) == [index + 1 for index in expected] + [length] * (16 - len(expected))


@pytest.mark.parametrize("num_frames", [1, 2, 5, 16, 23])
def test_rewind_is_read_at_the_last_frame_or_at_the_last_place(layout: Layout, num_frames: int) -> None:
    """Offline, the authors pad to 16 frames and read the place min(i, 15) of frame i; online, they read the last."""
    chat = RewindChat(**layout("rewind"))
    video = list(np.random.default_rng(num_frames).integers(0, 255, (num_frames, 1, 224, 224, 3), np.uint8))
    views = [MultiViewFrame(image, np.ones(1, bool)) for image in video]
    history = FrameHistory(capacity=64)
    for view in views[:-1]:
        history = history.append(view)
    context = replace(context_of(1), history=history, first=views[0], previous=views[0], current=views[-1])

    def expected(frames: list[np.ndarray], place: int) -> float:
        padded = frames + frames[-1:] * (16 - len(frames))
        (video,) = chat.encoders.encode_videos([padded])
        with torch.inference_mode():
            return float(chat.net(video[None], chat.encoders.encode_text("go")[None])[0, place])

    def subsample(images: list[np.ndarray]) -> list[np.ndarray]:
        return [images[i] for i in np.linspace(0, len(images) - 1, min(len(images), 16)).astype(int)]

    images = [image[0] for image in video]
    offline_queries = RewindQuestion(offline=True).build_queries(context)
    other_queries = RewindQuestion(offline=True).build_queries(context_of(1))
    offline, _ = chat.ask([*offline_queries, *other_queries])
    last_valid = expected(subsample(images), min(num_frames - 1, 15))
    assert offline.head_outputs == pytest.approx({"progress": last_valid}, abs=1e-6)
    (online,) = chat.ask(RewindQuestion().build_queries(context))
    last_place = expected(subsample(images[1:] or images), 15)
    assert online.head_outputs == pytest.approx({"progress": last_place}, abs=1e-6)


def test_a_readout_is_a_setting_of_rewind(layout: Layout) -> None:
    judge = open_judge(JudgeConfig(type="rewind", readout="offline", **layout("rewind")))  # type: ignore[arg-type]
    assert isinstance(judge, VlmJudge) and judge.question == RewindQuestion(offline=True)
    with pytest.raises(UserError, match=r"unknown value of judge.readout 'ofline'. Did you mean 'offline'"):
        JudgeConfig(type="rewind", readout="ofline")
    with pytest.raises(UserError, match="a setting of judge=rewind, not of judge=robometer"):
        JudgeConfig(type="robometer", readout="offline")


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [0] * 8),
        (5, [0, 1, 2, 3, 4, 4, 4, 4]),
        (8, list(range(8))),
        (64, [0, 9, 18, 27, 36, 45, 54, 63]),
        (65, [0, 9, 18, 27, 37, 46, 55, 64]),
    ],
)
def test_robometer_gets_eight_frames(length: int, expected: list[int]) -> None:
    (query,) = RobometerQuestion().build_queries(context_of(length))
    assert frame_numbers(query) == expected


def test_dinov2_scales_its_position_embeddings_as_its_authors() -> None:
    """Against the authors' formula: bicubic by the factor (16 + 0.1) / 37."""
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=1, image_size=518, patch_size=14
    )
    model = transformers.Dinov2Model(config).eval()
    table = model.embeddings.position_embeddings.detach().clone()
    interpolate_position_embeddings(model)
    grid = table[0, 1:].reshape(37, 37, 12).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(grid, scale_factor=(16.1 / 37, 16.1 / 37), mode="bicubic")
    scaled = model.embeddings.position_embeddings[0]
    assert torch.equal(scaled[:1], table[0, :1])
    torch.testing.assert_close(scaled[1:].reshape(16, 16, 12).permute(2, 0, 1)[None], expected)
    by_size = torch.nn.functional.interpolate(grid, size=(16, 16), mode="bicubic")
    assert (by_size - expected).norm() / expected.norm() > 0.005, "the library's own interpolation differs"
    pixels = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        patches = model.embeddings.patch_embeddings(pixels)
        tokens = torch.cat([model.embeddings.cls_token, patches], dim=1) + scaled
        torch.testing.assert_close(model.embeddings(pixels), tokens)


def test_rewind_uses_them(layout: Layout, tmp_path: Path) -> None:
    folders = layout("rewind")
    shutil.copytree(folders["base_model"], tmp_path / "base")
    config = transformers.Dinov2Config(
        hidden_size=768, num_hidden_layers=1, num_attention_heads=12, mlp_ratio=1, image_size=518, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "base" / "dinov2")
    chat = RewindChat(folders["folder"], tmp_path / "base")
    assert chat.encoders.vision_model.embeddings.position_embeddings.shape == (1, 257, 768)


def hop_context(potential: float, num_scores: int) -> EpisodeContext:
    return replace(context_of(3), potential=potential, num_scores=num_scores)


@pytest.mark.parametrize(
    ("potential", "num_scores", "hop", "incremental"),
    [(0.0, 0, -31, -0.31), (-0.31, 1, 50, 0.345), (-0.31, 1, -20, -0.248), (0.0, 1, -31, 0.0), (0.0, 0, 40, 0.4)],
)
def test_robo_dopamine_keeps_a_negative_first_hop(
    potential: float, num_scores: int, hop: int, incremental: float
) -> None:
    """The potential is the mean of the recursion and of the hop from the first frame, which is 0 here."""
    answers = [Answer(text=f"<score>{hop}%</score>"), Answer(text="<score>0%</score>")]
    parsed = RoboDopamineQuestion().parse_answers(answers, hop_context(potential, num_scores))
    assert parsed is not None and parsed.potential == pytest.approx(incremental / 2)


@pytest.mark.parametrize("text", ['{"_from_model_config": true}', '{"eos_token_id": null}', None])
def test_vlac_ends_at_the_end_of_a_turn_where_no_other_token_is_named(
    layout: Layout, tmp_path: Path, text: str | None
) -> None:
    folder = tmp_path / "vlac"
    shutil.copytree(layout("vlac")["folder"], folder)
    path = folder / "generation_config.json"
    path.unlink() if text is None else path.write_text(text)
    chat = VlacChat(folder)
    assert chat._eos_token_ids == (chat.tokenizer.special_tokens["<|im_end|>"],)


def test_robo_dopamine_keeps_the_pixel_limits_of_its_folder(layout: Layout, tmp_path: Path) -> None:
    folder = layout("robo_dopamine")["folder"]
    own = LocalChat(folder).processor.image_processor.size
    assert LocalChat(folder, pixel_limits=PIXEL_LIMITS).processor.image_processor.size == own
    shutil.copytree(folder, tmp_path / "plain")
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = tmp_path / "plain" / name
        if path.is_file():
            path.write_text(json.dumps(without_limits(json.loads(path.read_text()))))
    size = LocalChat(tmp_path / "plain", pixel_limits=PIXEL_LIMITS).processor.image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == PIXEL_LIMITS


def without_limits(config: dict) -> dict:
    config = {key: value for key, value in config.items() if key not in ("size", "min_pixels", "max_pixels")}
    return {key: without_limits(value) if key == "image_processor" else value for key, value in config.items()}


def test_lrm_uses_the_processor_of_its_progress_adapter(layout: Layout, tmp_path: Path) -> None:
    folders = layout("lrm")
    released = tmp_path / "released"
    shutil.copytree(folders["folder"], released)
    assert LrmChat(released, folders["base_model"]).processor.image_processor.size["shortest_edge"] != 4096
    processor = transformers.AutoProcessor.from_pretrained(folders["base_model"])
    processor.image_processor.size = {"shortest_edge": 4096, "longest_edge": 65536}
    processor.save_pretrained(released / "progress")
    assert LrmChat(released, folders["base_model"]).processor.image_processor.size["shortest_edge"] == 4096


@pytest.fixture
def robometer(layout: Layout, tmp_path: Path) -> dict[str, Path]:
    """A copy of the released files, to change."""
    folders = layout("robometer")
    shutil.copytree(folders["folder"], tmp_path / "released")
    return {**folders, "folder": tmp_path / "released"}


def read_all(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write weights as one file."""
    for path in folder.glob("model*"):
        path.unlink()
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


QUERY = Query(parts=("The task", *np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), np.uint8)))


def test_a_head_with_one_output_is_a_regression(robometer: dict[str, Path]) -> None:
    tensors = read_all(robometer["folder"])
    tensors["progress_head.4.weight"] = torch.zeros(1, tensors["progress_head.4.weight"].shape[1])
    tensors["progress_head.4.bias"] = torch.tensor([0.4])
    rewrite(robometer["folder"], tensors)
    (answer,) = RobometerChat(**robometer).ask([QUERY])
    assert answer.head_outputs is not None
    assert answer.head_outputs["progress"] == pytest.approx(1 / (1 + np.exp(-0.4)))


@pytest.mark.parametrize("setting", ["use_per_frame_progress_token", "use_multi_image"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_model_that_is_read_elsewhere_is_refused(robometer: dict[str, Path], setting: str, nested: bool) -> None:
    settings = {setting: False, "progress_loss_type": "l1"}
    text = yaml.safe_dump({"data": settings} if nested else settings)
    (robometer["folder"] / "config.yaml").write_text(text)
    with pytest.raises(CheckpointError, match=f"config.yaml: {setting} is False, only True is supported"):
        RobometerChat(**robometer)


def test_an_unreadable_configuration_is_named(robometer: dict[str, Path]) -> None:
    (robometer["folder"] / "config.yaml").write_text("a: [1")
    with pytest.raises(CheckpointError, match=r"config.yaml: not readable"):
        RobometerChat(**robometer)


def test_the_layout_of_lerobot_gives_the_same_scores(robometer: dict[str, Path]) -> None:
    (expected,) = RobometerChat(**robometer).ask([QUERY])
    folder = robometer["folder"]
    tensors = read_all(folder)
    renamed = {f"model.{name}" if name.startswith("model.") else name: tensor for name, tensor in tensors.items()}
    renamed["model.lm_head.weight"] = tensors["model.language_model.embed_tokens.weight"].clone()
    rewrite(folder, renamed)
    config = json.loads((folder / "config.json").read_text())
    lerobot = {"type": "robometer", "use_multi_image": True, "progress_discrete_bins": 10, "vlm_config": config}
    (folder / "config.json").write_text(json.dumps(lerobot))
    (answer,) = RobometerChat(**robometer).ask([QUERY])
    assert answer.head_outputs == pytest.approx(expected.head_outputs, abs=1e-6)


def test_an_unknown_layout_is_refused_with_expected_and_stored_names(robometer: dict[str, Path]) -> None:
    tensors = read_all(robometer["folder"])
    renamed = {name.replace("model.", "backbone.", 1): tensor for name, tensor in tensors.items()}
    rewrite(robometer["folder"], renamed)
    pattern = r"(\d+) of \1 weights are missing, such as .* \(the nearest name is .*\); its files have \d+, such as b"
    with pytest.raises(CheckpointError, match=pattern):
        RobometerChat(**robometer)
