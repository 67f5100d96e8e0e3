"""Vision and text encoders of `transformers` and timm with the interface of an open_clip model.

The classes are selected here by the name of an architecture. `config.json` is read as data, limited to the fields of
the class, and weights are read from safetensors only. No file in the folder can name code to run.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor, nn

from embodied_rm.checkpoint_io import read_bytes
from embodied_rm.errors import CheckpointError, UserError, lookup, unknown_name_message
from embodied_rm.models.load_pretrained import checkpoint_errors, load_pretrained
from embodied_rm.models.model_folder import check_model_folder, check_number_of_parts
from embodied_rm.models.processor_limits import parse_tokenizer
from embodied_rm.models.timm_encoder import TIMM_MODEL_TYPE, TimmImageTower, build_timm
from embodied_rm.models.tokens import MAX_TEXT_CHARS
from embodied_rm.text_file import read_text


class Architecture(NamedTuple):
    """The `transformers` classes of an architecture."""

    config_class: type
    model_class: type
    dim_field: str = "hidden_size"  # configuration field with the length of the output vectors


VISION_ARCHITECTURES = {
    "clip_vision_model": Architecture(transformers.CLIPVisionConfig, transformers.CLIPVisionModel),
    "siglip_vision_model": Architecture(transformers.SiglipVisionConfig, transformers.SiglipVisionModel),
    "dinov2": Architecture(transformers.Dinov2Config, transformers.Dinov2Model),
    "dinov2_with_registers": Architecture(
        transformers.Dinov2WithRegistersConfig, transformers.Dinov2WithRegistersModel
    ),
    "dinov3_vit": Architecture(transformers.DINOv3ViTConfig, transformers.DINOv3ViTModel),
}
TEXT_ARCHITECTURES = {
    "clip_text_model": Architecture(
        transformers.CLIPTextConfig, transformers.CLIPTextModelWithProjection, "projection_dim"
    ),
    "siglip_text_model": Architecture(transformers.SiglipTextConfig, transformers.SiglipTextModel, "projection_size"),
    "bert": Architecture(transformers.BertConfig, transformers.BertModel),
    "xlm-roberta": Architecture(transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
    "mpnet": Architecture(transformers.MPNetConfig, transformers.MPNetModel),
}
MEAN_POOLED_TYPES = ("bert", "xlm-roberta", "mpnet")
"""Text encoders whose sentence vector is the mean of the token vectors; the others provide one."""
DUAL_ARCHITECTURES = {
    "clip": ("clip_vision_model", "clip_text_model"),
    "siglip": ("siglip_vision_model", "siglip_text_model"),
}
"""Architectures with an image and a text encoder, described in `vision_config` and `text_config`."""
PIXEL_STATISTICS = {"siglip": ((0.5,) * 3, (0.5,) * 3), "clip": ((0.481, 0.458, 0.408), (0.269, 0.261, 0.276))}
PIXEL_STATISTICS |= dict.fromkeys(
    ("dinov2", "dinov2_with_registers", "dinov3_vit"), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)
"""Mean and standard deviation of the pixels in training, for folders without preprocessor_config.json."""
CONFIG_FILE, TOKENIZER_FILE, PREPROCESSOR_FILE = "config.json", "tokenizer.json", "preprocessor_config.json"
MAX_TOKENS = 64  # largest number of tokens of an instruction


def read_description(folder: Path) -> dict[str, Any]:
    """Read "vision" and "text" -> the fields of the architecture and its `model_type`; either may be missing.

    `CheckpointError` if the folder's `config.json` is invalid.
    """
    path = folder / CONFIG_FILE
    stored = read_bytes(path)
    with checkpoint_errors(f"{path}: not the description of a model"):
        content = json.loads(stored)
        model_type = str(content["model_type"])
    if model_type in DUAL_ARCHITECTURES:
        vision_type, text_type = DUAL_ARCHITECTURES[model_type]
        parts = {"vision": (vision_type, content.get("vision_config")), "text": (text_type, content.get("text_config"))}
    elif model_type in VISION_ARCHITECTURES:
        parts = {"vision": (model_type, content)}
    elif model_type in TEXT_ARCHITECTURES:
        parts = {"text": (model_type, content)}
    else:
        known = [*DUAL_ARCHITECTURES, *VISION_ARCHITECTURES, *TEXT_ARCHITECTURES]
        raise CheckpointError(f"{path}: {unknown_name_message(model_type, known, 'architecture')}")
    return {part: _select_fields(path, name, stored) for part, (name, stored) in parts.items()}


def _select_fields(path: Path, model_type: str, stored: Any) -> dict[str, Any]:
    """The fields of the architecture with plain values."""
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: describes no {model_type}")
    names = _config_fields(VISION_ARCHITECTURES.get(model_type) or TEXT_ARCHITECTURES[model_type])
    return {"model_type": model_type, **{name: stored[name] for name in names if _is_plain(stored.get(name))}}


def _config_fields(architecture: Architecture) -> list[str]:
    return [
        name
        for name, parameter in inspect.signature(architecture.config_class).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not name.startswith("_")
    ]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, bool | int | float | str)


def pixel_statistics(folder: Path, model_type: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the pixels that the image encoder in a folder expects, for values in [0, 1]."""
    mean, std = PIXEL_STATISTICS[model_type.removesuffix("_vision_model")]
    path = folder / PREPROCESSOR_FILE
    if not path.exists():
        return mean, std
    with checkpoint_errors(f"{path}: cannot be read"):
        stored = json.loads(read_text(path))
        return tuple(map(float, stored.get("image_mean", mean))), tuple(map(float, stored.get("image_std", std)))


class TransformersTowers(nn.Module):
    """An image and a text encoder with the methods of an open_clip model that `Encoder` uses."""

    words: Tensor

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Build the encoders with random weights from the parts of `read_description`.

        "tokenizer_bytes" is the length of the tokenizer file, which is stored with the weights. `CheckpointError` if a
        part cannot be built.
        """
        super().__init__()
        self.visual = _build_vision_encoder(description["vision"])
        self.reader = _build_model(TEXT_ARCHITECTURES, description["text"])
        self.mean_pooling = description["text"]["model_type"] in MEAN_POOLED_TYPES
        self.register_buffer("words", torch.zeros(description["tokenizer_bytes"], dtype=torch.uint8))
        self._tokenizer: Tokenizer | None = None

    def encode_text(self, ids: Tensor) -> Tensor:
        """Token ids [N, L] -> [N, D]."""
        if not self.mean_pooling:
            outputs = self.reader(input_ids=ids)
            return outputs.text_embeds if hasattr(outputs, "text_embeds") else outputs.pooler_output
        attention_mask = (ids != self._pad_id()).to(torch.int64)
        token_embeddings = self.reader(input_ids=ids, attention_mask=attention_mask).last_hidden_state
        num_tokens = attention_mask.sum(dim=1, keepdim=True).clamp(min=1)
        return (token_embeddings * attention_mask[..., None]).sum(dim=1) / num_tokens

    def tokenize(self, sentences: Sequence[str]) -> Tensor:
        """Token ids int64 [N, L], truncated and padded."""
        if self._tokenizer is None:
            words = bytes(self.words.cpu().numpy()).decode()
            tokenizer = parse_tokenizer(words, TOKENIZER_FILE)
            max_length = self._max_length()
            tokenizer.enable_truncation(max_length)
            tokenizer.enable_padding(length=max_length, pad_id=self._pad_id())
            self._tokenizer = tokenizer
        with checkpoint_errors(f"{TOKENIZER_FILE}: it cannot encode an instruction"):
            encodings = self._tokenizer.encode_batch([sentence[:MAX_TEXT_CHARS] for sentence in sentences])
            return torch.tensor([encoding.ids for encoding in encodings], dtype=torch.int64)

    def _max_length(self) -> int:
        # RoBERTa numbers positions from the padding id on.
        return min(MAX_TOKENS, self.reader.config.max_position_embeddings - 2 * self.mean_pooling)

    def _pad_id(self) -> int:
        pad_id = self.reader.config.pad_token_id
        return int(self.reader.config.eos_token_id if pad_id is None else pad_id)


class VisionEncoder(nn.Module):
    """An image encoder whose patch tokens are arranged as a feature map."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def prune_intermediate_layers(self, indices: Sequence[int], **_: Any) -> list[int]:
        """As in timm; only the last layer is supported."""
        assert list(indices) == [-1], "only the last feature map is supported"
        return [-1]

    def forward_intermediates(self, images: Tensor, **_: Any) -> dict[str, list[Tensor]]:
        """Normalized images [M, 3, H, W] -> feature map [M, C, h, w] of the last layer."""
        tokens = self.model(pixel_values=images).last_hidden_state
        patch_size = self.model.config.patch_size
        height, width = (size // patch_size for size in images.shape[2:])
        patch_tokens = tokens[:, tokens.shape[1] - height * width :]  # class and register tokens come first
        return {"image_intermediates": [patch_tokens.transpose(1, 2).unflatten(2, (height, width))]}


def _build_vision_encoder(fields: Mapping[str, Any]) -> nn.Module:
    if fields["model_type"] == TIMM_MODEL_TYPE:
        return TimmImageTower(build_timm(str(fields["architecture"])))
    return VisionEncoder(_build_model(VISION_ARCHITECTURES, fields))


def _build_model(architectures: Mapping[str, Architecture], fields: Mapping[str, Any]) -> Any:
    """Build a model with these fields, random weights and eager attention."""
    architecture = lookup(architectures, str(fields["model_type"]), "architecture")
    with checkpoint_errors(f"describes no {fields['model_type']} that can be built"):
        return architecture.model_class(_build_config(architecture, fields))


def _build_config(architecture: Architecture, fields: Mapping[str, Any]) -> Any:
    """Build a configuration from untrusted fields.

    A field that is not the architecture's own could make transformers download or run something: `UserError`.
    """
    allowed = {"model_type", *_config_fields(architecture)}
    for name, value in fields.items():
        if name not in allowed or not _is_plain(value):
            raise UserError(f"{name}={value!r} is no plain field of {fields['model_type']}")
    check_number_of_parts(fields, fields["model_type"])
    return architecture.config_class(**{name: value for name, value in fields.items() if name != "model_type"})


class LoadedEncoder(NamedTuple):
    """An encoder with its weights, and the fields that describe it."""

    fields: dict[str, Any]
    model: Any


class LoadedTextEncoder(NamedTuple):
    """A text encoder with its weights, its description and the bytes of its tokenizer file."""

    fields: dict[str, Any]
    model: Any
    tokenizer: bytes


def load_vision_encoder(folder: Path) -> LoadedEncoder:
    """Load the image encoder of a folder; `CheckpointError` if it has none that is valid."""
    fields = _require_part(folder, "vision", "image", "")
    return LoadedEncoder(fields, VisionEncoder(_load_weights(folder, VISION_ARCHITECTURES, fields)))


def load_text_encoder(folder: Path) -> LoadedTextEncoder:
    """Load the text encoder of a folder; `CheckpointError` if it has none that is valid."""
    fields = _require_part(folder, "text", "text", "; name one: text_encoder=minilm, or transformers:<folder>")
    tokenizer = _read_tokenizer(folder)
    config = _read_config(folder, TEXT_ARCHITECTURES, fields)
    if config.pad_token_id is None and config.eos_token_id is None:
        raise CheckpointError(f"{folder / CONFIG_FILE}: names neither pad_token_id nor eos_token_id")
    return LoadedTextEncoder(fields, _load_weights(folder, TEXT_ARCHITECTURES, fields), tokenizer)


def join_towers(vision: LoadedEncoder, text: LoadedTextEncoder) -> tuple[dict[str, Any], TransformersTowers]:
    """Join an image encoder and a text encoder; also return the description from which both can be built again."""
    description = {"vision": vision.fields, "text": text.fields, "tokenizer_bytes": len(text.tokenizer)}
    towers = TransformersTowers(description)
    towers.visual, towers.reader = vision.model, text.model
    towers.words.copy_(torch.from_numpy(np.frombuffer(text.tokenizer, np.uint8).copy()))
    return description, towers


def _require_part(folder: Path, part: str, label: str, hint: str) -> dict[str, Any]:
    check_model_folder(folder)
    fields = read_description(folder).get(part)
    if fields is None:
        raise CheckpointError(f"{folder}: has no {label} encoder{hint}")
    return fields


def _read_tokenizer(folder: Path) -> bytes:
    path = folder / TOKENIZER_FILE
    content = read_bytes(path)
    with checkpoint_errors(f"{path}: not a tokenizer"):
        text = content.decode()
    parse_tokenizer(text, path)
    return content


def _read_config(folder: Path, architectures: Mapping[str, Architecture], fields: Mapping[str, Any]) -> Any:
    with checkpoint_errors(f"{folder / CONFIG_FILE}: describes no {fields['model_type']} that can be built"):
        return _build_config(architectures[fields["model_type"]], fields)


def _load_weights(folder: Path, architectures: Mapping[str, Architecture], fields: Any) -> Any:
    """Load the model with the folder's weights; the configuration is passed in, not read again."""
    architecture, model_type = architectures[fields["model_type"]], fields["model_type"]
    options = {"config": _read_config(folder, architectures, fields), "dtype": torch.float32}
    message = f"the weights of its {model_type} cannot be read"
    model, missing = load_pretrained(architecture.model_class, folder, message, **options)
    if missing:
        names = ", ".join(missing[:3])
        raise CheckpointError(f"{folder}: its weights are not those of {model_type}: {names}")
    return model
