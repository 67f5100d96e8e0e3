"""Vision and text encoders of `transformers` with the interface of an open_clip model, loaded from a folder.

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
        model_type = content["model_type"]
    if model_type in DUAL_ARCHITECTURES:
        vision_type, text_type = DUAL_ARCHITECTURES[model_type]
        parts = {"vision": (vision_type, content.get("vision_config")), "text": (text_type, content.get("text_config"))}
    elif model_type in VISION_ARCHITECTURES:
        parts = {"vision": (model_type, content)}
    elif model_type in TEXT_ARCHITECTURES:
        parts = {"text": (model_type, content)}
    else:
        known = [*DUAL_ARCHITECTURES, *VISION_ARCHITECTURES, *TEXT_ARCHITECTURES]
        raise CheckpointError(f"{path}: {unknown_name_message(str(model_type), known, 'architecture')}")
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
        stored = json.loads(path.read_text())
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
        self.visual = VisionEncoder(_build_model(VISION_ARCHITECTURES, description["vision"]))
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
            tokenizer = Tokenizer.from_str(bytes(self.words.cpu().numpy()).decode())
            max_length = self._max_length()
            tokenizer.enable_truncation(max_length)
            tokenizer.enable_padding(length=max_length, pad_id=self._pad_id())
            self._tokenizer = tokenizer
        encodings = self._tokenizer.encode_batch(list(sentences))
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
    return architecture.config_class(**{name: value for name, value in fields.items() if name != "model_type"})


def load_towers(vision_folder: Path, text_folder: Path | None) -> tuple[dict[str, Any], TransformersTowers]:
    """Load the image encoder of one folder and the text encoder of another (None: of the same), with their weights.

    `CheckpointError` if a folder has no valid encoder of that kind.
    """
    text_folder = vision_folder if text_folder is None else text_folder
    parts = {"vision": read_description(vision_folder).get("vision"), "text": read_description(text_folder).get("text")}
    for part, folder, label in (("vision", vision_folder, "image"), ("text", text_folder, "text")):
        if parts[part] is None:
            hint = "; name a folder with one: text_tower=transformers:..." if part == "text" else ""
            raise CheckpointError(f"{folder}: has no {label} encoder{hint}")
    tokenizer_bytes = _read_tokenizer(text_folder)
    assert parts["text"] is not None
    text_config = _build_config(TEXT_ARCHITECTURES[parts["text"]["model_type"]], parts["text"])
    if text_config.pad_token_id is None and text_config.eos_token_id is None:
        raise CheckpointError(f"{text_folder / CONFIG_FILE}: names neither pad_token_id nor eos_token_id")
    description = {**parts, "tokenizer_bytes": len(tokenizer_bytes)}
    towers = TransformersTowers(description)
    towers.visual.model = _load_weights(vision_folder, VISION_ARCHITECTURES, parts["vision"])
    towers.reader = _load_weights(text_folder, TEXT_ARCHITECTURES, parts["text"])
    towers.words.copy_(torch.from_numpy(np.frombuffer(tokenizer_bytes, np.uint8).copy()))
    return description, towers


def _read_tokenizer(folder: Path) -> bytes:
    path = folder / TOKENIZER_FILE
    content = read_bytes(path)
    try:
        Tokenizer.from_str(content.decode())
    except Exception as error:
        raise CheckpointError(f"{path}: not a tokenizer ({str(error).splitlines()[0]})") from None
    return content


def _load_weights(folder: Path, architectures: Mapping[str, Architecture], fields: Any) -> Any:
    """Load the model with the folder's weights; the configuration is passed in, not read again."""
    architecture = architectures[fields["model_type"]]
    options = {"config": _build_config(architecture, fields), "dtype": torch.float32}
    model, missing = load_pretrained(architecture.model_class, folder, "its weights cannot be read", **options)
    if missing:
        names = ", ".join(missing[:3])
        raise CheckpointError(f"{folder}: its weights are not those of {fields['model_type']}: {names}")
    return model
