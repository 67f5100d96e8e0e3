"""Robometer: progress and success at a token after each frame of a video; a Qwen3-VL with three small heads."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from torch import nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, BatchedChat, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.local import WEIGHT_DTYPES
from embodied_rm.models.judges.questions import ParsedAnswer, Question, camera_videos, mean_head_output
from embodied_rm.models.judges.released_prompts import ROBOMETER_PROMPT
from embodied_rm.models.load_pretrained import checkpoint_errors, load_pretrained, read_weights

ADDED_TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
"""Tokens added to the tokenizer of the base model, in the order of their embeddings."""
PROGRESS_TOKEN = "<|prog_token|>"  # follows each frame; the heads are applied at its position
HEAD_NAMES = ("progress_head", "success_head")
MAX_FRAMES = 8  # maximum number of frames per video, including the first and the current one
PIXEL_LIMITS = (4_096, 16_777_216)
"""Minimum and maximum number of pixels per image: limits of the library that prepared its images, for patches of 16."""


class RobometerChat(BatchedChat):
    """A `ChatModel` that answers with the head outputs `progress` and `success` of the last frame."""

    def __init__(
        self,
        folder: Path,
        base_model: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attn_implementation: str = "sdpa",
        batch_size: int = 16,
    ) -> None:
        """Load the released files and the processor of the Qwen3-VL that it was trained from, in `base_model`.

        `CheckpointError` if a file is not as released. See `LocalChat` for the other arguments.
        """
        self.batch_size, self._device = batch_size, device
        self.model, self.heads = load_backbone(folder, attn_implementation), load_heads(folder)
        for module in (self.model, self.heads):
            module.to(device=device, dtype=WEIGHT_DTYPES[dtype]).eval()
        self.processor = _load_processor(base_model)
        self._progress_token_id: int = self.processor.tokenizer.convert_tokens_to_ids(PROGRESS_TOKEN)
        num_embeddings = self.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
        if len(self.processor.tokenizer) > num_embeddings:
            raise CheckpointError(
                f"{base_model}: its tokenizer with Robometer's tokens has {len(self.processor.tokenizer)} tokens, but "
                f"the model in {folder} has {num_embeddings} embeddings: it was trained from another model"
            )

    @torch.inference_mode()
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        encoding = self.processor.apply_chat_template(
            [[{"role": "user", "content": _message_content(query)}] for query in queries],
            tokenize=True,
            add_generation_prompt=False,
            add_vision_id=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "right"},
        )
        inputs = {name: tensor.to(self._device) for name, tensor in encoding.items()}
        hidden_states = self.model(**inputs).last_hidden_state
        token_indices = [int(torch.nonzero(ids == self._progress_token_id)[-1]) for ids in inputs["input_ids"]]
        frame_states = hidden_states[torch.arange(len(token_indices)), torch.tensor(token_indices)]
        progress_logits, success_logits = (self.heads[name](frame_states).float() for name in HEAD_NAMES)
        bin_centers = torch.linspace(0, 1, progress_logits.shape[1], device=progress_logits.device)
        progress_values = (progress_logits.softmax(dim=1) * bin_centers).sum(dim=1).tolist()
        success_probs = success_logits[:, 0].sigmoid().tolist()
        values = zip(progress_values, success_probs, strict=True)
        return [Answer(head_outputs={"progress": progress, "success": success}) for progress, success in values]


class RobometerQuestion(Question):
    """Progress and success at the last frame of the video so far; the mean of one video per camera."""

    predicts_success = True
    history_capacity = 64

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        task = ROBOMETER_PROMPT.replace("{instruction}", context.instruction)
        return tuple(Query(parts=(task, *video)) for video in camera_videos(context, MAX_FRAMES))

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        progress, success = (mean_head_output(answers, name) for name in ("progress", "success"))
        return ParsedAnswer(min(max(progress, 0.0), 1.0), success)


def make_head(width: int, outputs: int) -> nn.Sequential:
    """Create a head in the released layout, with weights at the positions 0, 1 and 4."""
    hidden = width // 2
    output_layer = nn.Linear(hidden, outputs)
    return nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(0.1), output_layer)


def load_heads(folder: Path) -> nn.ModuleDict:
    """Load the heads of a folder; `CheckpointError` if a file cannot be read or a head is missing."""
    stored = read_weights(sorted(folder.glob("*.safetensors")), tuple(f"{name}." for name in HEAD_NAMES))
    tensors = {name: tensor.float() for name, tensor in stored.items()}
    missing = [name for name in HEAD_NAMES if f"{name}.4.weight" not in tensors or f"{name}.0.weight" not in tensors]
    if missing:
        raise CheckpointError(f"{folder}: no {missing[0]} in its weights, so it is not a Robometer as released")
    shapes = {name: (tensors[f"{name}.0.weight"].shape[1], tensors[f"{name}.4.weight"].shape[0]) for name in HEAD_NAMES}
    heads = nn.ModuleDict({name: make_head(*shape) for name, shape in shapes.items()})
    with checkpoint_errors(f"{folder}: its heads are not as released"):
        heads.load_state_dict(tensors)
    return heads


def load_backbone(folder: Path, attn_implementation: str) -> nn.Module:
    """Load the Qwen3-VL without its language head; `CheckpointError` if it cannot be loaded."""
    problem = "not a Robometer as released"
    with checkpoint_errors(f"{folder}: {problem}"):
        model_type = json.loads((folder / "config.json").read_text())["model_type"]
    if model_type != "qwen3_vl":
        raise CheckpointError(f"{folder / 'config.json'}: Robometer is a qwen3_vl, not {model_type!r}")
    options = {"attn_implementation": attn_implementation}
    model, missing = load_pretrained(transformers.Qwen3VLModel, folder, problem, **options)
    if missing:
        raise CheckpointError(f"{folder}: {missing[0]} is missing in its weights")
    return model


def _load_processor(base_model: Path) -> Any:
    options: Any = {"local_files_only": True}
    with checkpoint_errors(f"{base_model}: its processor cannot be loaded"):
        processor = transformers.AutoProcessor.from_pretrained(base_model, trust_remote_code=False, **options)
    vocab = processor.tokenizer.get_vocab()
    for token in ADDED_TOKENS:
        if token not in vocab:
            added = {"additional_special_tokens": [token]}
            processor.tokenizer.add_special_tokens(added, replace_extra_special_tokens=False)
    processor.image_processor.size = {"shortest_edge": PIXEL_LIMITS[0], "longest_edge": PIXEL_LIMITS[1]}
    return processor


def _message_content(query: Query) -> list[dict[str, Any]]:
    task, *frames = query.parts
    content: list[dict[str, Any]] = [{"type": "text", "text": task}]
    for frame in frames:
        content += [{"type": "image", "image": frame}, {"type": "text", "text": PROGRESS_TOKEN}]
    return content
