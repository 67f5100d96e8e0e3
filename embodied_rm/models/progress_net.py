"""`ProgressNet`: any number of views and a sentence -> step-aware progress, causally, each frame encoded once."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm import fusion
from embodied_rm.errors import UserError, choices
from embodied_rm.models.base import Memory
from embodied_rm.models.encoders import Encoder, EncoderConfig, small_encoder
from embodied_rm.models.heads import Heads
from embodied_rm.models.memory import FrameMemory
from embodied_rm.models.state import StateFusion, ViewToken
from embodied_rm.types import Array, Frames, IntArray, Progress, Views

CHUNK = 384
"""Pictures that go through the image tower at once: more no longer fit the caches, and memory stays bounded."""


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """The architecture of a `ProgressNet`, as its checkpoint stores it."""

    views: tuple[str, ...]
    """Views it knows. A judgement needs one of them, whichever are there."""
    encoder: EncoderConfig = field(default_factory=lambda: small_encoder("patch_tower_tiny", (64, 64)))
    width: int = 128
    """Length of tokens and states."""
    layers: int = 2
    """Transformer layers that fuse views and instruction."""
    channels: int = 16
    """Channels that each view's map is reduced to."""
    grid: tuple[int, int] = (8, 8)
    """Cells, height and width, that each view's map is pooled to; a smaller map stays as it is."""
    max_steps: int = 16
    """Most steps that a task may have."""
    fusion: fusion.Fusion = "mean"
    """How the perspectives become one potential."""


class ProgressNet(nn.Module):
    """A `RewardModel`. Shapes: N environments, V views, P pictures.

    Judging runs in eval mode without autograd and leaves the module as it was; rows are independent of each other.
    """

    takes_tensors = True
    """`Views.frames` may be a tensor, on any device."""

    def __init__(self, config: NetConfig, encoder: Encoder | None = None) -> None:
        """`encoder`: the one of `config.encoder`, already built, with its weights; made anew when None."""
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        width = config.width
        self.instruction = nn.Linear(config.encoder.open_clip["embed_dim"], width)
        self.view_embedding = nn.Parameter(0.02 * torch.randn(len(config.views), width))
        self.view_token = ViewToken(self.encoder.map_shape(), width, channels=config.channels, grid=config.grid)
        self.fusion = StateFusion(width, config.layers)
        self.heads = Heads(width, config.max_steps)

    # What training and judging share

    def read(self, instructions: Sequence[str]) -> Tensor:
        """Instruction vectors [N, width]; equal sentences are read once."""
        unique = list(dict.fromkeys(instructions))
        vectors = self._vectors(unique)
        return vectors[torch.tensor([unique.index(sentence) for sentence in instructions], device=vectors.device)]

    def _vectors(self, sentences: Sequence[str]) -> Tensor:
        return self.instruction(self.encoder.read(self.encoder.tokenize(sentences)))

    def states(self, maps: Tensor, view: Tensor, owner: Tensor, instruction: Tensor) -> Tensor:
        """States [N, width] of N moments from the maps [P, C, h, w] of the pictures that are there.

        `view` int64 [P]: which view a picture shows, `owner` int64 [P]: which moment it belongs to (each pair once);
        `instruction` [N, width]. The state of a moment without pictures means nothing.
        """
        condition = instruction[owner] + self.view_embedding[view]
        tokens = self.view_token(maps, condition) + self.view_embedding[view]
        shape = (instruction.shape[0], len(self.config.views))
        dense = tokens.new_zeros(*shape, tokens.shape[-1]).index_put((owner, view), tokens)
        present = torch.zeros(shape, dtype=torch.bool, device=tokens.device).index_put(
            (owner, view), torch.ones_like(owner, dtype=torch.bool)
        )
        return self.fusion(dense, present, instruction)

    def fused_by(self, kind: fusion.Fusion) -> ProgressNet:
        """This very net, its weights shared, whose perspectives become one potential in another way."""
        other = copy.copy(self)
        other.config = replace(self.config, fusion=kind)
        return other

    # The contract

    def begin(self, views: Views, instructions: Sequence[str], goal: Views | None = None) -> FrameMemory:
        """Open N episodes at their first frames; `goal` shows for each how the task looks when done.

        Raises `UserError` when lengths differ, a view is unknown to the model, a goal shows nothing, or the model's
        fusion needs goals and there are none.
        """
        if len(instructions) != len(views) or (goal is not None and len(goal) != len(views)):
            raise UserError(
                f"begin needs one instruction (and goal) an environment: got views of {len(views)}, "
                f"{len(instructions)} instructions" + ("" if goal is None else f", {len(goal)} goals")
            )
        if goal is None and self.config.fusion == "backward":
            raise UserError(
                "fusion=backward looks from the goal picture and there is none: give one (evaluate goals=true), or "
                f"choose another fusion: {', '.join(f for f in fusion.FUSIONS if f != 'backward')}"
            )
        with judging(self):
            instruction = self.read(instructions)
            state, seen = self._look(views, instruction)
            shown = None if goal is None else self._goal(goal, instruction)
        return FrameMemory.fresh(instruction, state, seen, shown)

    def _goal(self, goal: Views, instruction: Tensor) -> Tensor:
        state, shown = self._look(goal, instruction)
        if not shown.all():
            row = int((~shown).nonzero()[0])
            raise UserError(f"the goal of environment {row} shows none of {', '.join(self.config.views)}")
        return state

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, FrameMemory]:
        """Judge one new frame set a row, fusing what is seen from the previous, the first and the goal frame.

        A row without any present view is invalid and carries its last judgement; a row that has shown nothing before
        opens with this frame. Raises `UserError` when lengths differ or a view is unknown to the model.
        """
        assert isinstance(memory, FrameMemory)
        if len(views) != len(memory):
            raise UserError(f"advance needs views of {len(memory)} environments, got {len(views)}")
        with judging(self):
            state, seen = self._look(views, memory.instruction)
            memory = memory.opened_by(state, seen)
            perspectives = self._perspectives(memory, state)
            potential = fusion.fuse(self.config.fusion, memory.potential(), perspectives)
            after = memory.updated(
                seen,
                previous=state,
                phi=torch.from_numpy(potential).to(seen.device),
                success=torch.sigmoid(self.heads.completion(memory.first, state)),
                stage=self.heads.step(memory.first, state).argmax(dim=-1),
            )
        return after.progress(seen, fusion.spread(perspectives)), after

    def _perspectives(self, memory: FrameMemory, state: Tensor) -> dict[str, Array]:
        """The potential of each row as seen from its anchors, float32 [N] each."""
        anchors = {"incremental": memory.previous, "forward": memory.first}
        potentials: dict[str, Array | float] = {"incremental": memory.potential(), "forward": fusion.FIRST}
        if memory.goal is not None:
            anchors["backward"], potentials["backward"] = memory.goal, fusion.GOAL
        hops = self.heads.hop(torch.stack(list(anchors.values())), state).cpu().numpy()
        return {name: fusion.apply_hop(potentials[name], hop) for name, hop in zip(anchors, hops, strict=True)}

    def _look(self, views: Views, instruction: Tensor) -> tuple[Tensor, Tensor]:
        """States [N, width] of the moments shown, and where anything was shown, bool [N]. Reads present views only."""
        for name in views.names:
            if name not in self.config.views:
                raise UserError(choices(name, self.config.views, "view"))
        present = np.ones((len(views), len(views.names)), bool) if views.present is None else views.present
        owner, column = np.nonzero(present)
        known = np.array([self.config.views.index(name) for name in views.names])
        state = self._seen(views.frames, owner, column, known[column], instruction)
        return state, torch.from_numpy(present.any(axis=1)).to(instruction.device)

    def _seen(
        self, frames: Frames | Tensor, owner: IntArray, column: IntArray, view: IntArray, instruction: Tensor
    ) -> Tensor:
        """States [N, width]; picture i is `frames[owner[i], column[i]]` and shows `view[i]`, `owner` ascends."""
        maps = self._maps(frames, owner, column)
        views, owners = (torch.from_numpy(index).to(instruction.device) for index in (view, owner))
        return self.states(maps, views, owners, instruction)

    def _maps(self, frames: Frames | Tensor, owner: IntArray, column: IntArray) -> Tensor:
        chunks = [slice(i, i + CHUNK) for i in range(0, max(len(owner), 1), CHUNK)]
        device = self.view_embedding.device
        pictures = (shown(frames, owner[chunk], column[chunk]).to(device) for chunk in chunks)
        maps = [self.encoder.look(self.encoder.prepare(chunk)) for chunk in pictures]
        return maps[0] if len(maps) == 1 else torch.cat(maps)


def shown(frames: Frames | Tensor, owner: IntArray, column: IntArray) -> Tensor:
    """The pictures uint8 [P, H, W, 3] of the environments `owner` in the views `column`, each once and in
    order; a tensor's stay where they are."""
    if isinstance(frames, np.ndarray):
        return torch.from_numpy(frames[owner, column])
    if len(owner) == frames.shape[0] * frames.shape[1]:
        return frames.flatten(0, 1)
    index = torch.from_numpy(owner * frames.shape[1] + column).to(frames.device)
    # On the CPU six times as fast as frames[owner, column].
    return frames.flatten(0, 1).index_select(0, index)


@contextmanager
def judging(model: nn.Module) -> Iterator[None]:
    """Eval mode without autograd inside, the mode as it was behind."""
    training = model.training
    if training:  # walking through all modules takes a tenth of a judgement's time
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if training:
            model.train()
