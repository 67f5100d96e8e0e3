"""Vision and text encoders of `transformers` with the face of an open_clip model, from a folder that holds them.

Which classes are built is decided here, by the name of an architecture; `config.json` is read as data, as far as the
class's own fields go, and weights from safetensors only. Nothing in a folder can name code to be run.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError, UserError, choices, lookup


class Family(NamedTuple):
    """What an architecture is built of."""

    config: type
    model: type
    size: str = "hidden_size"
    """The field that says how long its vectors are."""


EYES = {
    "clip_vision_model": Family(transformers.CLIPVisionConfig, transformers.CLIPVisionModel),
    "siglip_vision_model": Family(transformers.SiglipVisionConfig, transformers.SiglipVisionModel),
    "dinov2": Family(transformers.Dinov2Config, transformers.Dinov2Model),
    "dinov2_with_registers": Family(transformers.Dinov2WithRegistersConfig, transformers.Dinov2WithRegistersModel),
    "dinov3_vit": Family(transformers.DINOv3ViTConfig, transformers.DINOv3ViTModel),
}
READERS = {
    "clip_text_model": Family(transformers.CLIPTextConfig, transformers.CLIPTextModelWithProjection, "projection_dim"),
    "siglip_text_model": Family(transformers.SiglipTextConfig, transformers.SiglipTextModel, "projection_size"),
    "bert": Family(transformers.BertConfig, transformers.BertModel),
    "xlm-roberta": Family(transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
    "mpnet": Family(transformers.MPNetConfig, transformers.MPNetModel),
}
SENTENCES = ("bert", "xlm-roberta", "mpnet")
"""Readers whose sentence is the mean of its words' vectors; the others have a vector for it."""
PAIRS = {"clip": ("clip_vision_model", "clip_text_model"), "siglip": ("siglip_vision_model", "siglip_text_model")}
"""Architectures that hold an eye and a reader, as `vision_config` and `text_config`."""
PIXELS = {"siglip": ((0.5,) * 3, (0.5,) * 3), "clip": ((0.481, 0.458, 0.408), (0.269, 0.261, 0.276))}
PIXELS |= dict.fromkeys(
    ("dinov2", "dinov2_with_registers", "dinov3_vit"), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)
"""Mean and spread of the pixels that an architecture was trained on, where no preprocessor_config.json tells."""
CONFIG, TOKENIZER, PREPROCESSOR = "config.json", "tokenizer.json", "preprocessor_config.json"
FAULTS = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ZeroDivisionError,
    SafetensorError,
    StrictDataclassError,
)
"""What `transformers` raises for descriptions and weights that make no model: it has no errors of its own."""
LONGEST = 64
"""Most tokens of an instruction."""


def read_description(folder: Path) -> dict[str, Any]:
    """What is in a folder: {"vision": ..., "text": ...}, either may be missing; each the fields of its architecture and
    its `model_type`. Raises `CheckpointError` naming the file and its fault."""
    path = folder / CONFIG
    try:
        content = json.loads(path.read_text())
        kind = content["model_type"]
    except OSError as fault:
        raise CheckpointError(f"{path}: cannot be read ({fault.strerror})") from None
    except (ValueError, KeyError, TypeError) as fault:
        raise CheckpointError(f"{path}: not the description of a model ({fault!r})") from None
    if kind in PAIRS:
        eye, reader = PAIRS[kind]
        parts = {"vision": (eye, content.get("vision_config")), "text": (reader, content.get("text_config"))}
    elif kind in EYES:
        parts = {"vision": (kind, content)}
    elif kind in READERS:
        parts = {"text": (kind, content)}
    else:
        raise CheckpointError(f"{path}: {choices(str(kind), [*PAIRS, *EYES, *READERS], 'architecture')}")
    return {part: _fields(path, name, stored) for part, (name, stored) in parts.items()}


def _fields(path: Path, kind: str, stored: Any) -> dict[str, Any]:
    """The fields that are the architecture's own, of plain values."""
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: describes no {kind}")
    own = _own_fields(EYES.get(kind) or READERS[kind])
    return {"model_type": kind, **{name: stored[name] for name in own if _plain(stored.get(name))}}


def _own_fields(family: Family) -> list[str]:
    return [
        name
        for name, parameter in inspect.signature(family.config).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not name.startswith("_")
    ]


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    return isinstance(value, bool | int | float | str)


def pixels_of(folder: Path, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and spread of the pixels that the eye in a folder expects, of values in [0, 1]."""
    mean, std = PIXELS[kind.removesuffix("_vision_model")]
    path = folder / PREPROCESSOR
    if not path.exists():
        return mean, std
    try:
        told = json.loads(path.read_text())
        return tuple(map(float, told.get("image_mean", mean))), tuple(map(float, told.get("image_std", std)))
    except (ValueError, TypeError, AttributeError) as fault:
        raise CheckpointError(f"{path}: cannot be read ({fault})") from None


class TransformersTowers(nn.Module):
    """An eye and a reader, with the methods of an open_clip model that `Encoder` uses."""

    words: Tensor

    def __init__(self, description: Mapping[str, Any]) -> None:
        """`description`: "vision" and "text" as from `read_description`, and "tokenizer_bytes", the length of the
        tokenizer's file, which is among the weights. Random weights. Raises `CheckpointError` where the parts do not
        make a model."""
        super().__init__()
        self.visual = Eye(_built(EYES, description["vision"]))
        self.reader = _built(READERS, description["text"])
        self.mean_of_words = description["text"]["model_type"] in SENTENCES
        self.register_buffer("words", torch.zeros(description["tokenizer_bytes"], dtype=torch.uint8))
        self._tokenizer: Tokenizer | None = None

    def encode_text(self, ids: Tensor) -> Tensor:
        """Token ids [N, L] -> [N, D]."""
        if not self.mean_of_words:
            said = self.reader(input_ids=ids)
            return said.text_embeds if hasattr(said, "text_embeds") else said.pooler_output
        there = (ids != self._pad()).to(torch.int64)
        words = self.reader(input_ids=ids, attention_mask=there).last_hidden_state
        return (words * there[..., None]).sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1)

    def tokenize(self, sentences: Sequence[str]) -> Tensor:
        """Token ids int64 [N, L], longer sentences cut, shorter ones filled up."""
        if self._tokenizer is None:
            tokenizer = Tokenizer.from_str(bytes(self.words.cpu().numpy()).decode())
            length = self._length()
            tokenizer.enable_truncation(length)
            tokenizer.enable_padding(length=length, pad_id=self._pad())
            self._tokenizer = tokenizer
        return torch.tensor([row.ids for row in self._tokenizer.encode_batch(list(sentences))], dtype=torch.int64)

    def _length(self) -> int:
        # A position is taken up by the padding's in RoBERTa's numbering.
        return min(LONGEST, self.reader.config.max_position_embeddings - 2 * self.mean_of_words)

    def _pad(self) -> int:
        pad = self.reader.config.pad_token_id
        return int(self.reader.config.eos_token_id if pad is None else pad)


class Eye(nn.Module):
    """An image encoder whose tokens are laid out as a map."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def prune_intermediate_layers(self, indices: Sequence[int], **_: Any) -> list[int]:
        """As timm's; the last layer alone is read."""
        assert list(indices) == [-1], "the last map is read"
        return [-1]

    def forward_intermediates(self, pictures: Tensor, **_: Any) -> dict[str, list[Tensor]]:
        """Normalised pictures [M, 3, H, W] -> map [M, C, h, w] of the last layer."""
        tokens = self.model(pixel_values=pictures).last_hidden_state
        patch = self.model.config.patch_size
        height, width = (side // patch for side in pictures.shape[2:])
        cells = tokens[:, tokens.shape[1] - height * width :]  # class and register tokens come first
        return {"image_intermediates": [cells.transpose(1, 2).unflatten(2, (height, width))]}


def _built(families: Mapping[str, Family], fields: Mapping[str, Any]) -> Any:
    """A model of an architecture with those fields, random weights, eager attention."""
    family = lookup(families, str(fields["model_type"]), "architecture")
    try:
        return family.model(_configured(family, fields))
    except FAULTS as fault:
        reason = str(fault).strip().splitlines()[0]
        raise CheckpointError(f"describes no {fields['model_type']} that can be built ({reason})") from None


def _configured(family: Family, fields: Mapping[str, Any]) -> Any:
    """The configuration of those fields. A manifest may come from anybody: a field that is not the architecture's own,
    with which transformers might fetch or run something, is a `ValueError`."""
    own = {"model_type", *_own_fields(family)}
    for name, value in fields.items():
        if name not in own or not _plain(value):
            raise UserError(f"{name}={value!r} is no plain field of {fields['model_type']}")
    return family.config(**{name: value for name, value in fields.items() if name != "model_type"})


def load_towers(eye: Path, reader: Path | None) -> tuple[dict[str, Any], TransformersTowers]:
    """The eye in one folder and the reader in another (None: in the same), with their weights, and their description.

    Raises `CheckpointError` naming the folder and its fault.
    """
    reader = eye if reader is None else reader
    described = {"vision": read_description(eye).get("vision"), "text": read_description(reader).get("text")}
    for part, folder, what in (("vision", eye, "image"), ("text", reader, "text")):
        if described[part] is None:
            more = "; name a folder with one: text_tower=transformers:..." if part == "text" else ""
            raise CheckpointError(f"{folder}: has no {what} encoder{more}")
    words = _tokenizer_in(reader)
    assert described["text"] is not None
    if not _marked(described["text"]):
        raise CheckpointError(f"{reader / CONFIG}: names neither pad_token_id nor eos_token_id")
    description = {**described, "tokenizer_bytes": len(words)}
    towers = TransformersTowers(description)
    towers.visual.model = _weighted(eye, EYES, described["vision"])
    towers.reader = _weighted(reader, READERS, described["text"])
    towers.words.copy_(torch.from_numpy(np.frombuffer(words, np.uint8).copy()))
    return description, towers


def _marked(fields: Mapping[str, Any]) -> bool:
    """Whether an architecture has marks for padding or the end of its own."""
    usual = _configured(READERS[fields["model_type"]], fields)
    return usual.pad_token_id is not None or usual.eos_token_id is not None


def _tokenizer_in(folder: Path) -> bytes:
    path = folder / TOKENIZER
    try:
        content = path.read_bytes()
        Tokenizer.from_str(content.decode())
    except OSError as fault:
        raise CheckpointError(f"{path}: cannot be read ({fault.strerror})") from None
    except Exception as fault:
        raise CheckpointError(f"{path}: not a tokenizer ({str(fault).splitlines()[0]})") from None
    return content


def _weighted(folder: Path, families: Mapping[str, Family], fields: Any) -> Any:
    """The model with the folder's weights. Its configuration is ours: the folder's is not read again."""
    family = families[fields["model_type"]]
    try:
        model, told = family.model.from_pretrained(  # type: ignore[attr-defined]
            folder,
            config=_configured(family, fields),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            dtype=torch.float32,
        )
    except FAULTS as fault:
        raise CheckpointError(f"{folder}: its weights cannot be read ({str(fault).strip().splitlines()[0]})") from None
    if told["missing_keys"] or told["mismatched_keys"]:
        lacks = sorted([*told["missing_keys"], *(str(key) for key in told["mismatched_keys"])])
        raise CheckpointError(f"{folder}: its weights are not those of {fields['model_type']}: {', '.join(lacks[:3])}")
    return model
