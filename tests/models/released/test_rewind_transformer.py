"""ReWiND in the layout of Robometer's authors, against their network written in plain tensor operations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from sprites import episode
from torch import Tensor

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.released.rewind_transformer import RewindTransformerChat, RewindTransformerQuestion
from embodied_rm.models.scoring import score_episodes

Layout = Callable[[str], dict[str, Path]]
SETTINGS = {
    "model_type": "rewind_transformer", "architectures": ["ReWiNDTransformer"], "video_feature_dim": 768,
    "text_feature_dim": 384, "hidden_dim": 32, "num_layers": 2, "num_attention_heads": 4, "dropout": 0.1, "max_len": 16,
    "causal_mask": True, "use_per_frame_progress_token": True, "progress_loss_type": "discrete",
    "progress_discrete_bins": 5,
}  # fmt: skip
"""A config.json as their class writes it, for a small network."""
TASK = "open the red drawer"


def make_tensors(settings: dict[str, Any]) -> dict[str, Tensor]:
    """Random weights with the names of their class, encoders and the parts for comparisons included."""
    torch.manual_seed(0)
    width, tokens = settings["hidden_dim"], (1, settings["max_len"], settings["hidden_dim"])
    bins = settings["progress_discrete_bins"] if settings["progress_loss_type"] == "discrete" else 1
    shapes: dict[str, tuple[int, ...]] = {"video_proj.weight": (width, 768), "text_proj.weight": (width, 384)}
    shapes |= {f"{name}_proj.bias": (width,) for name in ("video", "text")}
    shapes |= dict.fromkeys(("first_embedding_A", "first_embedding_B", "preference_token"), (1, 1, width))
    if settings["use_per_frame_progress_token"]:
        shapes |= {"text_position_embedding": (1, 1, width), "prog_token_A": tokens, "prog_token_B": tokens}
    for i in range(settings["num_layers"]):
        base = f"transformer.layers.{i}"
        shapes |= {
            f"{base}.self_attn.in_proj_weight": (3 * width, width),
            f"{base}.self_attn.in_proj_bias": (3 * width,),
        }
        shapes |= {f"{base}.self_attn.out_proj.weight": (width, width), f"{base}.self_attn.out_proj.bias": (width,)}
        shapes |= {f"{base}.linear1.weight": (4 * width, width), f"{base}.linear1.bias": (4 * width,)}
        shapes |= {f"{base}.linear2.weight": (width, 4 * width), f"{base}.linear2.bias": (width,)}
        shapes |= {f"{base}.norm{n}.{part}": (width,) for n in (1, 2) for part in ("weight", "bias")}
    for head, outputs in (("progress_head", bins), ("preference_head", 1), ("success_head", 1)):
        shapes |= {f"{head}.0.weight": (width // 2, width), f"{head}.0.bias": (width // 2,)}
        shapes |= {f"{head}.1.weight": (width // 2,), f"{head}.1.bias": (width // 2,)}
        shapes |= {f"{head}.4.weight": (outputs, width // 2), f"{head}.4.bias": (outputs,)}
    shapes |= {"image_encoder.layernorm.weight": (8,), "text_encoder.embeddings.LayerNorm.bias": (8,)}
    return {name: torch.randn(shape) / max(shape[-1], 16) ** 0.5 for name, shape in shapes.items()}


def save(folder: Path, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def run_peer(w: dict[str, Tensor], settings: dict[str, Any], video: Tensor, text: Tensor) -> tuple[float, float]:
    """Progress and success at the last of the frames [L, 768]: their forward pass for `sample_type="progress"`."""
    linear, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm
    width, heads = settings["hidden_dim"], settings["num_attention_heads"]
    frames = [linear(frame, w["video_proj.weight"], w["video_proj.bias"]) for frame in video]
    frames[0] = frames[0] + w["first_embedding_A"][0, 0]
    sequence = [linear(text, w["text_proj.weight"], w["text_proj.bias"])]
    if settings["use_per_frame_progress_token"]:
        sequence[0] = sequence[0] + w["text_position_embedding"][0, 0]
        for i, frame in enumerate(frames):
            sequence += [frame, w["prog_token_A"][0, i]]
    else:
        sequence += frames
    x = torch.stack(sequence)
    for i in range(settings["num_layers"]):
        p = {
            k.removeprefix(f"transformer.layers.{i}."): t
            for k, t in w.items()
            if k.startswith(f"transformer.layers.{i}.")
        }
        q, k, v = (
            linear(x, p["self_attn.in_proj_weight"], p["self_attn.in_proj_bias"]).view(len(x), 3, heads, -1).unbind(1)
        )
        scores = torch.einsum("ihd,jhd->hij", q, k) / (width // heads) ** 0.5
        if settings["causal_mask"]:
            scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).flatten(1)
        x = x + linear(mixed, p["self_attn.out_proj.weight"], p["self_attn.out_proj.bias"])
        x = norm(x, (width,), p["norm1.weight"], p["norm1.bias"])
        hidden = linear(x, p["linear1.weight"], p["linear1.bias"]).relu()
        x = x + linear(hidden, p["linear2.weight"], p["linear2.bias"])
        x = norm(x, (width,), p["norm2.weight"], p["norm2.bias"])

    def head(name: str) -> Tensor:
        y = linear(x[-1], w[f"{name}.0.weight"], w[f"{name}.0.bias"])
        y = torch.nn.functional.gelu(norm(y, y.shape, w[f"{name}.1.weight"], w[f"{name}.1.bias"]))
        return linear(y, w[f"{name}.4.weight"], w[f"{name}.4.bias"])

    logits = head("progress_head")
    progress = (
        logits.sigmoid()[0] if len(logits) == 1 else (logits.softmax(0) * torch.linspace(0, 1, len(logits))).sum()
    )
    return float(progress), float(head("success_head").sigmoid())


def embed(base_model: Path, video: list[np.ndarray], task: str) -> tuple[Tensor, Tensor]:
    """The embeddings of their evaluations: DINOv2's pooled output, and MiniLM's mean of length 1."""
    vision_model = transformers.Dinov2Model.from_pretrained(base_model / "dinov2").eval()
    text_model = transformers.BertModel.from_pretrained(base_model / "minilm").eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(base_model / "minilm" / "tokenizer.json"))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = [((torch.from_numpy(image[16:240, 16:240]) / 255 - mean) / std).permute(2, 0, 1) for image in video]
    with torch.inference_mode():
        images = vision_model(pixel_values=torch.stack(pixels)).pooler_output
        text = text_model(input_ids=torch.tensor([tokenizer(task)["input_ids"]])).last_hidden_state.mean(1)[0]
    return images, text / text.norm()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causal_mask": False},
        {"use_per_frame_progress_token": False},
        {"progress_loss_type": "l2"},
        {"num_attention_heads": 2, "max_len": 8, "progress_discrete_bins": 32},
    ],
)
def test_outputs_equal_those_of_the_authors_network(layout: Layout, tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = {**SETTINGS, **changes}
    tensors = make_tensors(settings)
    base_model = layout("rewind")["base_model"]
    chat = RewindTransformerChat(save(tmp_path / "released", settings, tensors), base_model)
    video = list(np.random.default_rng(0).integers(0, 255, (8, 256, 256, 3), np.uint8))
    (answer,) = chat.ask([Query(parts=(TASK, *video))])
    progress, success = run_peer(tensors, settings, *embed(base_model, video, TASK))
    assert answer.head_outputs == pytest.approx({"progress": progress, "success": success}, abs=1e-5)


def test_settings_of_a_whole_experiment_are_read(layout: Layout, tmp_path: Path) -> None:
    """Their trainer writes the configuration of the network alone, or that of the experiment, with `rewind` in it."""
    tensors, base_model = make_tensors(SETTINGS), layout("rewind")["base_model"]
    query = Query(parts=(TASK, *np.zeros((8, 32, 32, 3), np.uint8)))
    (expected,) = RewindTransformerChat(save(tmp_path / "plain", SETTINGS, tensors), base_model).ask([query])
    nested = {"base_model_id": "rewind_transformer", "use_peft": False, "rewind": SETTINGS}
    (answer,) = RewindTransformerChat(save(tmp_path / "nested", nested, tensors), base_model).ask([query])
    assert answer == expected


def test_images_are_resized_as_by_the_published_processor(layout: Layout, tmp_path: Path) -> None:
    chat = RewindTransformerChat(
        save(tmp_path / "released", SETTINGS, make_tensors(SETTINGS)), layout("rewind")["base_model"]
    )
    image = np.random.default_rng(0).integers(0, 255, (300, 400, 3), np.uint8)
    resized = np.array(Image.fromarray(image).resize((341, 256), Image.Resampling.BICUBIC))[16:240, 58:282]
    expected = (resized / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    pixels = chat._preprocess(image).permute(1, 2, 0).numpy()
    assert pixels.shape == (224, 224, 3)
    assert np.abs(pixels - expected).max() <= 1.01 / 255 / 0.224, "at most one gray level"


def test_judge_rewind_recognizes_the_layout(layout: Layout, tmp_path: Path) -> None:
    folder, base_model = save(tmp_path / "released", SETTINGS, make_tensors(SETTINGS)), layout("rewind")["base_model"]
    judge = open_judge(JudgeConfig(type="rewind", folder=folder, base_model=base_model))
    assert isinstance(judge, VlmJudge) and isinstance(judge.question, RewindTransformerQuestion)
    assert judge.capabilities.predicts_success
    (output,) = score_episodes(judge, [episode(0, length=12)])
    assert output.valid.all() and np.isfinite(output.success[1:]).all() and np.ptp(output.progress[1:]) > 0
    with pytest.raises(UserError, match=r"judge.readout=offline is a setting of ReWiND's .pth"):
        open_judge(JudgeConfig(type="rewind", readout="offline", folder=folder, base_model=base_model))


def without(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def test_other_files_are_refused_with_expected_and_stored_names(layout: Layout, tmp_path: Path) -> None:
    tensors, base_model = make_tensors(SETTINGS), layout("rewind")["base_model"]
    renamed = {name.replace("video_proj", "vision_proj"): tensor for name, tensor in tensors.items()}
    short = {**SETTINGS, "max_len": 4}
    cases = {
        "renamed": (
            SETTINGS,
            renamed,
            r"2 of 43 .*, such as video_proj.bias \(the nearest name is vision_proj.b",
        ),
        "added": (SETTINGS, {**tensors, "pos_embed": torch.zeros(1)}, "1 of 44 weights are unknown, such as pos_embed"),
        "headless": (SETTINGS, without(tensors, "success_head.4.weight"), "such as success_head.4.weight"),
        "no_heads": (
            without(SETTINGS, "num_attention_heads"),
            tensors,
            "heads must be of type int, got None",
        ),
        "mask": ({**SETTINGS, "causal_mask": 1}, tensors, "causal_mask must be of type bool, got 1; its keys are arch"),
        "width": ({**SETTINGS, "hidden_dim": 16}, tensors, "weights do not fit"),
        "short": (short, make_tensors(short), "has 4 progress tokens, fewer than 8"),
    }
    for name, (settings, weights, message) in cases.items():
        with pytest.raises(CheckpointError, match=message):
            RewindTransformerChat(save(tmp_path / name, settings, weights), base_model)
    other = save(tmp_path / "other", {**SETTINGS, "model_type": "qwen3_vl"}, tensors)
    with pytest.raises(CheckpointError, match=r"neither a .pth file nor a config.json with model_type"):
        open_judge(JudgeConfig(type="rewind", folder=other, base_model=base_model))
