"""Descriptions of tokenizers that end the process, panic in Rust, or make many tokens of a short text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.models.processor_limits import check_tokenizer, parse_tokenizer
from embodied_rm.models.transformers_towers import _read_tokenizer

VOCABULARY = {"[UNK]": 0, "a": 1, "[CLS]": 2, "[SEP]": 3}
TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
}
TEXT_PIECE = {"Sequence": {"id": "A", "type_id": 0}}


def template(single: list[dict[str, Any]], num_ids: int = 1) -> dict[str, Any]:
    """A template whose special token has a number of ids."""
    token = {"id": "[CLS]", "ids": [2] * num_ids, "tokens": ["[CLS]"] * num_ids}
    pair = [TEXT_PIECE, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {"[CLS]": token}}


SPECIAL_PIECE = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
ATTACKS: dict[str, dict[str, Any]] = {
    "n^2 added tokens": {"post_processor": template([SPECIAL_PIECE] * 9000 + [TEXT_PIECE], 9000)},
    "a text of many copies": {"post_processor": template([TEXT_PIECE] * 9000)},
    "copies of copies": {
        "post_processor": {"type": "Sequence", "processors": [template([TEXT_PIECE] * 10)] * 12},
    },
    "a template without its token": {"post_processor": {**template([SPECIAL_PIECE]), "special_tokens": {}}},
    "an empty map of characters": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    "a map of no characters": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 4).decode()}
    },
    "pieces of length 0": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_tokenizer_is_refused_when_it_is_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({**TOKENIZER, **ATTACKS[name]}))
    for read in (check_tokenizer, _read_tokenizer):
        with pytest.raises(CheckpointError, match=r"tokenizer\.json: .*") as error:
            read(tmp_path)
        assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_template_of_released_tokenizers_and_a_stated_padding_are_accepted() -> None:
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]"}
    fine = {**TOKENIZER, "padding": padding, "post_processor": template([SPECIAL_PIECE, TEXT_PIECE, SPECIAL_PIECE])}
    assert parse_tokenizer(json.dumps(fine), "t").encode("a a").ids == [2, 1, 1, 2]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_is_no_error_of_a_checkpoint(kind: type[BaseException]) -> None:
    with pytest.raises(kind), checkpoint_errors("not read"):
        raise kind
