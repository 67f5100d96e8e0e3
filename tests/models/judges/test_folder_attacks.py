"""Files of model folders that are no descriptions: one sentence each, no code is run, no pipe is opened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_vlm

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.judges.local import LocalChat, has_pixel_limits
from embodied_rm.models.pretrained import load_open_clip
from embodied_rm.models.processor_limits import check_tokenizer
from embodied_rm.models.released.internvl_weights import load_internvl
from embodied_rm.models.released.lora_adapters import read_adapter
from embodied_rm.models.released.rewind_encoders import RewindEncoders
from embodied_rm.models.released.rewind_transformer import RewindTransformerChat, load_transformer_net
from embodied_rm.models.released.robometer_weights import check_readout, load_backbone, read_settings
from embodied_rm.models.released.sarm_net import load_sarm
from embodied_rm.models.released.vlac import _read_eos_token_ids, _read_special_tokens
from embodied_rm.models.timm_encoder import load_timm
from embodied_rm.models.transformers_towers import load_text_encoder, load_vision_encoder, pixel_statistics

import torch  # isort: skip

BRACKETS = ("[" * 100_000, '{"a":' * 100_000)
CONTENTS = (*BRACKETS, "7" * 5000, "NaN", "[1]", '"\\ud800"', "", "\xff")


@pytest.fixture(scope="module")
def vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vlm.save_model(tmp_path_factory.mktemp("vlm"), "qwen3_vl")


def refused(call: Callable[[], object], path: Path) -> None:
    with pytest.raises(CheckpointError) as error_info:
        call()
    message = str(error_info.value)
    assert str(path) in message and "\n" not in message


READERS: dict[str, list[Callable[[Path], object]]] = {
    "config.json": [
        load_vision_encoder,
        load_text_encoder,
        load_sarm,
        load_transformer_net,
        lambda folder: load_backbone(folder, "eager"),
        lambda folder: load_internvl(folder, 0, torch.float32, "eager"),
        lambda folder: load_timm(f"timm:{folder}"),
    ],
    "open_clip_config.json": [lambda folder: load_open_clip(f"local-dir:{folder}")],
    "adapter_config.json": [read_adapter],
    "tokenizer_config.json": [_read_special_tokens],
    "generation_config.json": [lambda folder: _read_eos_token_ids(folder / "generation_config.json", 1)],
    "preprocessor_config.json": [lambda folder: pixel_statistics(folder, "dinov2"), has_pixel_limits],
}


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
@pytest.mark.parametrize("name", READERS)
def test_file_that_is_no_description(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="latin-1")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    for reader in READERS[name]:
        refused(lambda reader=reader: reader(tmp_path), tmp_path)


@pytest.mark.parametrize("content", BRACKETS, ids=["brackets", "braces"])
def test_settings_in_yaml(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.yaml").write_text(content)
    refused(lambda: check_readout(tmp_path), tmp_path)


def yaml_levels(level: str) -> str:
    """Forty levels, each of which refers to the former twice."""
    lines = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {level.format(f'*a{i - 1}')}" for i in range(1, 41))]
    return "\n".join([*lines, "last: &last {y: *last}"])


def test_yaml_is_read_once_per_mapping(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml_levels("{{p: {0}, q: {0}}}"))
    assert read_settings(tmp_path / "config.yaml") == {"x": 1}


def test_yaml_is_not_merged(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml_levels("{{<<: [{0}, {0}]}}"))
    refused(lambda: check_readout(tmp_path), tmp_path)


def test_model_type_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": [1e999]}')
    for reader in READERS["config.json"]:
        refused(lambda reader=reader: reader(tmp_path), tmp_path)


@pytest.mark.parametrize("content", [BRACKETS[0], '"\\ud800"', "\xff"], ids=["brackets", "surrogate", "binary"])
def test_folder_of_a_generative_model(vlm: Path, tmp_path: Path, content: str) -> None:
    # transformers takes its own defaults for an invalid generation_config.json.
    names = sorted({path.name for path in vlm.glob("*.json")} - {"generation_config.json"})
    assert "config.json" in names and "tokenizer.json" in names
    for name in names:
        folder = tmp_path / name
        shutil.copytree(vlm, folder)
        (folder / name).write_text(content, encoding="latin-1")
        refused(lambda folder=folder: LocalChat(folder, pixel_limits=(1, 2)), folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_not_opened(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    refused(lambda: open_judge(JudgeConfig(type="question", folder=tmp_path)), path)
    refused(lambda: open_judge(JudgeConfig(type="rewind", folder=tmp_path / "other", base_model=tmp_path)), path)
    refused(lambda: load_vision_encoder(tmp_path), path)


def test_image_processor_of_a_folder_cannot_be_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt of `transformers`, whether the code of the folder may run, never appears."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setattr(
        "embodied_rm.models.released.rewind_transformer.load_transformer_net", lambda _: torch.nn.Linear(1, 1)
    )
    folder = tmp_path / "dinov2"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\nclass Processor: pass\n")
    (folder / "preprocessor_config.json").write_text(json.dumps({"auto_map": {"AutoImageProcessor": "evil.Processor"}}))
    refused(lambda: RewindTransformerChat(tmp_path, tmp_path), folder)
    assert not (tmp_path / "PWNED").exists()


def test_encoders_of_rewind(tmp_path: Path) -> None:
    (tmp_path / "dinov2").mkdir()
    (tmp_path / "dinov2" / "config.json").write_text(BRACKETS[0])
    refused(lambda: RewindEncoders(tmp_path, lambda frame: frame), tmp_path)


def rewrite_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
@pytest.mark.parametrize("pattern", [{"String": "e"}, {"Regex": ""}])
def test_a_tokenizer_may_not_let_texts_grow_without_bound(
    vlm: Path, tmp_path: Path, part: str, pattern: dict[str, str]
) -> None:
    """30 replacements of a letter by two make a billion letters of one."""
    replacement = {"type": "Replace", "pattern": pattern, "content": "ee"}
    growing = {"type": "Sequence", f"{part}s": [replacement] * 30}
    folder = shutil.copytree(vlm, tmp_path / "vlm")
    rewrite_json(folder / "tokenizer.json", lambda tokenizer: tokenizer.update({part: growing}))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: its replacements make a text .* times longer"):
        LocalChat(folder)


def test_replacements_of_released_tokenizers_are_accepted(vlm: Path, tmp_path: Path) -> None:
    """Llama's writes each space as a longer mark."""
    folder = shutil.copytree(vlm, tmp_path / "vlm")
    mark = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    both = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, mark]}
    rewrite_json(folder / "tokenizer.json", lambda tokenizer: tokenizer.update(normalizer=both))
    check_tokenizer(folder)


def test_a_processor_may_not_ask_for_images_of_any_size(vlm: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(vlm, tmp_path / "vlm")
    size = {"shortest_edge": 400_000_000, "longest_edge": 900_000_000}

    def enlarge(config: dict[str, Any]) -> None:
        config.get("image_processor", config)["size"] = size

    for path in (folder / "preprocessor_config.json", folder / "processor_config.json"):
        if path.exists():
            rewrite_json(path, enlarge)
    with pytest.raises(CheckpointError, match="its images have shortest_edge=400000000, at most 16777216 is possible"):
        LocalChat(folder)


def test_an_encoder_may_not_ask_for_images_of_any_size(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    config = {"architecture": "test_resnet", "pretrained_cfg": {"input_size": [3, 30_000, 30_000]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="input_size is 30000x30000, 4096 px is the largest side"):
        load_timm(f"timm:{tmp_path}")
