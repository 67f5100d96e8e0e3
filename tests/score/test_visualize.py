"""Any instruction can stand above a plot: none is read as mathematics, and none takes longer than another."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from embodied_rm.data.source import MAX_CAPTION_CHARS, EpisodeMeta
from embodied_rm.report.episode_images import ContactSheetRow, draw_contact_sheet
from embodied_rm.score.visualize import plot_episode
from embodied_rm.types import RewardOutput

INSTRUCTIONS = {
    "broken mathematics": r"lift $\frac{$ it",
    "nested mathematics": "$" + "x^{" * 300 + "1" + "}" * 300 + "$",
    "price": "put the $5 note and the $10 note away",
    "TeX": r"\input{/etc/passwd} \write18{id}",
    "ten megabytes": "lift the cube " * 700_000,
    "one long word": "x" * 1_000_000,
    "many lines": "lift\n" * 10_000,
    "controls": "a\x1b[2Jb\u202ec\u2028d\ufeffe",
    "empty": "",
}


@pytest.mark.parametrize("instruction", INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_any_instruction_is_drawn_above_a_plot_of_one_size(instruction: str) -> None:
    zeros = np.zeros(3, np.float32)
    prediction = RewardOutput(
        progress=zeros, success=zeros, subtask=np.zeros(3, np.int64), uncertainty=zeros, valid=zeros == 0, ood=zeros
    )
    meta = EpisodeMeta(name="episode", length=3, instruction=instruction)
    image = Image.open(io.BytesIO(plot_episode(meta, 10.0, prediction)))
    assert image.size == (900, 320)
    assert len(meta.caption) <= MAX_CAPTION_CHARS and meta.caption.isprintable()
    row = ContactSheetRow(caption=meta.caption, views={"front: first": np.zeros((20, 30, 3), np.uint8)})
    assert draw_contact_sheet([row]).startswith(b"\x89PNG")
