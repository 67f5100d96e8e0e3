"""Robometer: progress and success read off a token behind each frame of a film; Qwen3-VL with three small heads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.local import DTYPES
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import Said
from embodied_rm.models.judges.released_prompts import ROBOMETER
from embodied_rm.models.transformers_towers import FAULTS

TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
"""Added to the base's tokenizer in this order, which is that of their rows."""
HERE = "<|prog_token|>"
"""Behind each frame; what is said of the frame is read there."""
HEADS = ("progress_head", "success_head")
FRAMES = 8
"""Most frames of a film, the first and the present one among them."""
PIXELS = (4_096, 16_777_216)
"""The fewest and the most of a picture: bounds of the library that prepared its pictures, for patches of 16."""


class RobometerChat:
    """A `Chat` that answers with numbers: `progress` and `success` of the last frame. `folder` has the released files,
    `base` the processor of the Qwen3-VL that it was made from."""

    def __init__(
        self,
        folder: Path,
        base: Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attention: str = "sdpa",
        batch: int = 16,
    ) -> None:
        """Raises `CheckpointError` naming the file that is not as released."""
        self.batch, self._device = batch, device
        self.model, self.heads = read_backbone(folder, attention), read_heads(folder)
        for part in (self.model, self.heads):
            part.to(device=device, dtype=DTYPES[dtype]).eval()
        self.processor = _processor(base)
        self._here: int = self.processor.tokenizer.convert_tokens_to_ids(HERE)
        rows = self.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
        if len(self.processor.tokenizer) > rows:
            raise CheckpointError(
                f"{base}: its tokenizer with Robometer's tokens has {len(self.processor.tokenizer)}, the model in "
                f"{folder} knows {rows}: it was made from another model"
            )

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer each, in order."""
        parts = [queries[start : start + self.batch] for start in range(0, len(queries), self.batch)]
        return [answer for part in parts for answer in self._answered(part)]

    @torch.inference_mode()
    def _answered(self, queries: Sequence[Query]) -> list[Answer]:
        given = self.processor.apply_chat_template(
            [[{"role": "user", "content": _content(query)}] for query in queries],
            tokenize=True,
            add_generation_prompt=False,
            add_vision_id=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "right"},
        )
        inputs = {name: tensor.to(self._device) for name, tensor in given.items()}
        states = self.model(**inputs).last_hidden_state
        last = [int(torch.nonzero(ids == self._here)[-1]) for ids in inputs["input_ids"]]
        state = states[torch.arange(len(last)), torch.tensor(last)]
        progress, success = (self.heads[name](state).float() for name in HEADS)
        centres = torch.linspace(0, 1, progress.shape[1], device=progress.device)
        values = (progress.softmax(dim=1) * centres).sum(dim=1).tolist()
        done = success[:, 0].sigmoid().tolist()
        return [Answer(numbers={"progress": p, "success": s}) for p, s in zip(values, done, strict=True)]


@dataclass(frozen=True)
class LastFrame:
    """What is said of the last of a film's frames, each camera a film of its own; the mean of all."""

    tells_success: bool = True
    looks_back: bool = False
    keeps: int = 64

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        films = moment.film.evenly(moment.now, FRAMES)
        task = ROBOMETER.replace("{instruction}", moment.instruction)
        views = [name for name in moment.names if name in moment.now.of(moment.names)]
        return tuple(
            Query(parts=(task, *(seen[view] for picture in films if view in (seen := picture.of(moment.names)))))
            for view in views
        )

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        told = [answer.numbers for answer in answers if answer.numbers is not None]
        assert len(told) == len(answers)
        value, success = (sum(one[name] for one in told) / len(told) for name in ("progress", "success"))
        return Said(min(max(value, 0.0), 1.0), success)


def head(width: int, outputs: int) -> nn.Sequential:
    """A head in the released layout: weights at 0, 1 and 4."""
    half = width // 2
    last = nn.Linear(half, outputs)
    return nn.Sequential(nn.Linear(width, half), nn.LayerNorm(half), nn.GELU(), nn.Dropout(0.1), last)


def read_heads(folder: Path) -> nn.ModuleDict:
    """The heads in a folder. Raises `CheckpointError` naming the file that cannot be read, or what is missing."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                mine = [name for name in file.keys() if name.startswith(tuple(f"{name}." for name in HEADS))]  # noqa: SIM118
                tensors |= {name: file.get_tensor(name).float() for name in mine}
        except (OSError, SafetensorError) as fault:
            raise CheckpointError(f"{path}: not readable weights ({fault})") from None
    missing = [name for name in HEADS if f"{name}.4.weight" not in tensors or f"{name}.0.weight" not in tensors]
    if missing:
        raise CheckpointError(f"{folder}: no {missing[0]} in its weights, so it is no Robometer as released")
    shapes = {name: (tensors[f"{name}.0.weight"].shape[1], tensors[f"{name}.4.weight"].shape[0]) for name in HEADS}
    heads = nn.ModuleDict({name: head(*shape) for name, shape in shapes.items()})
    try:
        heads.load_state_dict(tensors)
    except RuntimeError as fault:
        raise CheckpointError(f"{folder}: its heads are not as released ({fault})") from None
    return heads


def read_backbone(folder: Path, attention: str) -> nn.Module:
    """The Qwen3-VL without its language head. Raises `CheckpointError` naming the folder and its fault."""
    try:
        kind = json.loads((folder / "config.json").read_text())["model_type"]
        if kind != "qwen3_vl":
            raise CheckpointError(f"{folder / 'config.json'}: Robometer is a qwen3_vl, not {kind!r}")
        model: Any
        told: Any
        model, told = transformers.Qwen3VLModel.from_pretrained(  # type: ignore[misc]
            folder,
            local_files_only=True,
            use_safetensors=True,
            attn_implementation=attention,
            output_loading_info=True,
        )
    except (*FAULTS, ImportError) as fault:
        if isinstance(fault, CheckpointError):
            raise
        raise CheckpointError(f"{folder}: not a Robometer as released ({fault})") from None
    if told["missing_keys"]:
        raise CheckpointError(f"{folder}: {sorted(told['missing_keys'])[0]} is missing in its weights")
    return model


def _processor(base: Path) -> Any:
    try:
        processor = transformers.AutoProcessor.from_pretrained(base, local_files_only=True, trust_remote_code=False)
    except (*FAULTS, ImportError) as fault:
        raise CheckpointError(f"{base}: holds no processor that can be loaded ({fault})") from None
    known = processor.tokenizer.get_vocab()
    for token in TOKENS:
        if token not in known:
            processor.tokenizer.add_special_tokens(
                {"additional_special_tokens": [token]}, replace_extra_special_tokens=False
            )
    processor.image_processor.size = {"shortest_edge": PIXELS[0], "longest_edge": PIXELS[1]}
    return processor


def _content(query: Query) -> list[dict[str, Any]]:
    task, *frames = query.parts
    content: list[dict[str, Any]] = [{"type": "text", "text": task}]
    for frame in frames:
        content += [{"type": "image", "image": frame}, {"type": "text", "text": HERE}]
    return content
