"""R3M, VIP and LIV: embeddings of their authors' examples, and the distance to a goal as a potential."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from released_baselines import add_prefix, liv, make_resnet, r3m, save, vip
from sprites import episode
from torch import Tensor, nn
from torchvision import transforms

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.released.goal_distance import to_potential
from embodied_rm.models.released.liv import LivEncoder
from embodied_rm.models.released.r3m import R3mEncoder, find_architecture
from embodied_rm.models.released.vip import VipEncoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.types import Views

EXAMPLE = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])
"""How the examples of R3M and VIP prepare an image."""
CROP_AGAIN = nn.Sequential(transforms.Resize(256, antialias=False), transforms.CenterCrop(224))
NORMALIZE = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])


def blocks(count: int, height: int = 3, width: int = 4) -> np.ndarray:
    """Images of squares in random colors."""
    rng = np.random.default_rng(0)
    images = [np.kron(rng.integers(0, 255, (height, width, 3)), np.ones((30, 30, 1))) for _ in range(count)]
    return np.stack(images).astype(np.uint8)


def embed(encoder: R3mEncoder | LivEncoder, frames: np.ndarray) -> Tensor:
    with torch.inference_mode():
        return encoder.encode_images(torch.stack([encoder.preprocess(frame) for frame in frames]))


@pytest.mark.parametrize(
    ("encoder_class", "write", "size", "crop", "shape"),
    [
        (R3mEncoder, r3m, 18, nn.Identity(), (3, 4)),
        (VipEncoder, vip, 18, CROP_AGAIN, (3, 4)),
        (VipEncoder, vip, 50, CROP_AGAIN, (12, 9)),
    ],
)
def test_resnets_embed_images_as_their_authors_examples(
    encoder_class: type[R3mEncoder], write: Callable, size: int, crop: nn.Module, shape: tuple[int, int], tmp_path: Path
) -> None:
    frames = blocks(2, *shape)
    net = make_resnet(size, 8 if write is vip else None)
    with torch.inference_mode():
        inputs = torch.stack([EXAMPLE(Image.fromarray(frame)) for frame in frames]) * 255.0
        expected = net(NORMALIZE(crop(inputs.float() / 255.0)))
    encoder = encoder_class(write(tmp_path, size)["folder"])
    torch.testing.assert_close(embed(encoder, frames), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(encoder_class(tmp_path / "model.pt").net.state_dict(), net.state_dict())


@pytest.mark.parametrize(
    ("name", "found"),
    [("resnet18", "resnet18"), ("resnet34", "resnet34"), ("resnet50", "resnet50"), ("resnet101", None)],
)
def test_the_network_is_found_by_its_weights(name: str, found: str | None) -> None:
    with torch.device("meta"):
        net = getattr(__import__("torchvision").models, name)(weights=None)
    assert find_architecture(net.state_dict()) == found


def test_liv_has_the_similarities_of_the_code_of_clip(tmp_path: Path) -> None:
    """The numbers are those of OpenAI's `clip` with the crops of LIV's `transforms_tensor`, on the same weights."""
    encoder = LivEncoder(liv(tmp_path)["folder"])
    embeddings = embed(encoder, blocks(4))
    to_image = 1 - encoder.distance(embeddings, embeddings[3])
    assert to_image.tolist() == pytest.approx([0.9848113, 0.9542570, 0.9910644, 1.0], abs=1e-5)
    expected = {
        "open the Microwave!": [-0.1416641, -0.0968168, -0.1615739, -0.2229241],
        "lift the red cube": [-0.0731067, -0.0175389, -0.0993700, -0.1671145],
    }
    for text, similarities in expected.items():
        with torch.inference_mode():
            to_text = 1 - encoder.distance(embeddings, encoder.encode_text(text))
        assert to_text.tolist() == pytest.approx(similarities, abs=1e-5)


@pytest.mark.parametrize(
    ("distance", "first_distance", "potential"),
    [(4, 4, 0), (3, 4, 0.25), (0, 4, 1), (5, 4, 0), (0, 0, 1), (1, 0, 0), (0.5, 1e-9, 0)],
)
def test_the_potential_is_relative_to_the_first_frame(distance: float, first_distance: float, potential: float) -> None:
    assert to_potential(distance, first_distance) == pytest.approx(potential)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("encoders")
    return {write.__name__: write(folder / write.__name__)["folder"] for write in (r3m, vip, liv)}


def open_encoder(folders: dict[str, Path], name: str) -> VlmJudge:
    judge = open_judge(JudgeConfig(type=name, folder=folders[name]))
    assert isinstance(judge, VlmJudge)
    return judge


@pytest.mark.parametrize("name", ["r3m", "vip", "liv"])
def test_the_goal_has_progress_1_and_rows_are_independent(folders: dict[str, Path], name: str) -> None:
    judge, trials = open_encoder(folders, name), [episode(0, length=5), episode(1, length=4)]
    long_output, short_output = score_episodes(judge, trials, trials)
    (alone,) = score_episodes(judge, trials[1:], trials[1:])
    assert long_output.valid.all() and not judge.failures and np.isnan(long_output.success[1:]).all()
    assert long_output.progress[0] == 0
    assert (long_output.progress[-1], short_output.progress[-1]) == pytest.approx((1, 1), abs=1e-4)
    assert short_output.progress == pytest.approx(alone.progress, abs=1e-5)
    distances = {}
    for view, frames in trials[0].views.items():
        embeddings = embed(judge.chat.encoder, frames)  # type: ignore[attr-defined]
        distances[view] = judge.chat.encoder.distance(embeddings, embeddings[-1]).numpy()  # type: ignore[attr-defined]
    expected = np.mean([np.clip(1 - d / d[0], 0, 1) for d in distances.values()], axis=0)
    assert long_output.progress == pytest.approx(expected, abs=1e-4), "the mean over the cameras"


def test_a_camera_without_a_goal_image_is_left_out(folders: dict[str, Path]) -> None:
    judge, trial = open_encoder(folders, "r3m"), episode(0, length=4)
    goal = replace(trial, views={"front": trial.views["front"]})
    (output,) = score_episodes(judge, [trial], [goal])
    (alone,) = score_episodes(judge, [goal], [goal])
    assert output.progress == pytest.approx(alone.progress, abs=1e-5)


@pytest.mark.parametrize("name", ["r3m", "vip"])
def test_without_a_goal_image_it_is_refused(folders: dict[str, Path], name: str) -> None:
    with pytest.raises(UserError, match=r"needs a goal image: set judge.goal_images=\[front.png\]"):
        open_encoder(folders, name).reset(Views(names=("front",), frames=np.zeros((1, 1, 8, 8, 3), np.uint8)), ["go"])


def test_liv_without_a_goal_image_reads_the_instruction(folders: dict[str, Path]) -> None:
    judge = open_encoder(folders, "liv")
    trial = replace(episode(0, length=4), instruction="open the Microwave!", views={"front": blocks(4)})
    (output,) = score_episodes(judge, [trial])
    distances = np.array([1.1416641, 1.0968168, 1.1615739, 1.2229241])
    assert output.progress == pytest.approx(np.clip(1 - distances / distances[0], 0, 1), abs=1e-4)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    trials = [episode(number, length=6) for number in (0, 2)]
    with DatasetWriter(folder / "dataset") as writer:
        for trial in trials:
            writer.add(trial)
    Image.fromarray(trials[0].views["front"][-1]).save(folder / "front.png")
    return folder


def test_score_and_evaluate_take_goal_images(folders: dict[str, Path], videos: Path, tmp_path: Path) -> None:
    judge = ["judge=liv", f"judge.folder={folders['liv']}", f"data={videos}/dataset"]
    score = ["score", *judge, f"out={tmp_path}/score", "videos=false", f"goal_images=[{videos}/front.png]"]
    evaluate = ["evaluate", *judge, f"out={tmp_path}/evaluate", "use_goal_images=true"]
    assert main(score) == 0 == main(evaluate)
    metrics = json.loads((tmp_path / "score" / "metrics.json").read_text())["score"]
    assert metrics["episodes"] == 2 and metrics["invalid"] == 0


def test_every_command_takes_the_goal_images_of_a_judge(
    folders: dict[str, Path], videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = ["judge=r3m", f"judge.folder={folders['r3m']}", f"data={videos}/dataset"]
    assert main(["audit", *judge, f"out={tmp_path}/without"]) == 2
    assert "needs a goal image: set judge.goal_images=[front.png]" in capsys.readouterr().err
    goal = f"judge.goal_images=[{videos}/front.png]"
    assert main(["audit", *judge, goal, f"out={tmp_path}/audit"]) == 0
    assert main(["score", *judge, goal, f"out={tmp_path}/key", "videos=false"]) == 0
    assert main(["score", *judge, f"goal_images=[{videos}/front.png]", f"out={tmp_path}/score", "videos=false"]) == 0
    tables = [pq.read_table(next((tmp_path / name).rglob("00000.parquet"))) for name in ("key", "score")]
    assert tables[0]["progress_dense"] == tables[1]["progress_dense"]


def test_simulated_episodes_are_rewarded_by_the_distance_to_a_goal_image(
    folders: dict[str, Path], videos: Path
) -> None:
    config = JudgeConfig(type="vip", folder=folders["vip"], goal_images=(videos / "front.png",))
    judge = open_judge(config)
    envs = make_envs("lift_cube", EnvConfig(num_envs=2, views=("front", "wrist")), ends_on_success=False)
    try:
        env = LearnedRewardEnv(envs, judge, RewardConfig(success_source="simulator"), gamma=1.0)
        env.reset(seed=0)
        _, reward, _, _, infos = env.step(np.ones((2, env.single_action_space.shape[0]), np.float32))
    finally:
        envs.close()
    assert (infos["next_potential"] > 0).any() and reward == pytest.approx(infos["next_potential"], abs=1e-6)


def test_a_judge_that_shows_no_goal_image_refuses_it(folders: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="judge=sarm takes no goal image"):
        JudgeConfig(type="sarm", folder=folders["r3m"], goal_images=(Path("front.png"),))


def test_the_digest_of_a_judge_covers_its_goal_images(folders: dict[str, Path], tmp_path: Path) -> None:
    config = JudgeConfig(type="r3m", folder=folders["r3m"], goal_images=(tmp_path / "front.png",))
    digests = set()
    for shade in (0, 255):
        Image.new("RGB", (8, 8), (shade,) * 3).save(tmp_path / "front.png")
        digests.add(judge_digest(config))
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("encoder_class", "key", "weights", "message"),
    [
        (R3mEncoder, "vip", {"module.convnet.fc.bias": torch.zeros(1)}, r"no weights module.convnet.... under the key"),
        (VipEncoder, "vip", {"convnet.fc.bias": torch.zeros(1)}, r"no weights module.convnet.... under the key 'vip'"),
        (R3mEncoder, "r3m", {"module.convnet.a.weight": torch.zeros(1)}, "not those of resnet18, resnet34, resnet50"),
        (LivEncoder, "liv", {"module.model.ln_final.weight": torch.zeros(1)}, "not the weights of a CLIP"),
    ],
)
def test_another_file_is_refused(
    encoder_class: Callable, key: str, weights: dict[str, Tensor], message: str, tmp_path: Path
) -> None:
    save(tmp_path, key, weights)
    with pytest.raises(CheckpointError, match=message):
        encoder_class(tmp_path)


def test_weights_of_other_sizes_are_refused(tmp_path: Path) -> None:
    weights = add_prefix("module.convnet.", make_resnet(18, None))
    save(tmp_path, "r3m", {**weights, "module.convnet.conv1.weight": torch.zeros(64, 1, 7, 7)})
    with pytest.raises(CheckpointError, match="not the weights of a resnet18"):
        R3mEncoder(tmp_path)
    with pytest.raises(CheckpointError, match=r"model\.pt: cannot be read"):
        R3mEncoder(tmp_path / "absent")
