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
from embodied_rm.models.base import Memory, Reference, Sight
from embodied_rm.models.encoders import Encoder, EncoderConfig, small_encoder
from embodied_rm.models.heads import Heads, Said
from embodied_rm.models.memory import FrameMemory
from embodied_rm.models.ood import StateDistribution, widened
from embodied_rm.models.pictures import Pictures
from embodied_rm.models.reference import Located, around, locate
from embodied_rm.models.state import StateFusion, ViewToken
from embodied_rm.models.witness import MAJORITY, agreed, there
from embodied_rm.types import Episode, Progress, Views

BLANK = "; a picture of one colour shows nothing"
BLOCK = 64
"""Frames of an episode that are looked at together: memory stays bounded."""
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
    usual_ood: float | None = None
    """Median out-of-distribution score of the held-out episodes that the distribution of its states was fitted on
    (`calibrate`). None: it knows none, and tells no scores."""
    interval_scale: float | None = None
    """Calibrated on held-out episodes: in nine of ten frames the true progress lay within so many spreads of the value
    (`metrics.interval`). None: not calibrated."""


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
        self.heads = Heads(width, config.max_steps, known=config.usual_ood is not None)

    @property
    def sight(self) -> Sight:
        """Its views, at the picture size of its tower."""
        return Sight(views=self.config.views, image_size=self.config.encoder.image_size)

    @property
    def interval_scale(self) -> float | None:
        """See `NetConfig`."""
        return self.config.interval_scale

    # What training and judging share

    def read(self, instructions: Sequence[str]) -> Tensor:
        """Instruction vectors [N, width]; equal sentences are read once."""
        unique = list(dict.fromkeys(instructions))
        vectors = self._vectors(unique)
        return vectors[torch.tensor([unique.index(sentence) for sentence in instructions], device=vectors.device)]

    def _vectors(self, sentences: Sequence[str]) -> Tensor:
        return self.instruction(self.encoder.hear(sentences))

    def states(self, maps: Tensor, view: Tensor, owner: Tensor, instruction: Tensor, hidden: Tensor) -> Tensor:
        """States [L, N, width] of N moments, looked at L times, from the maps [P, C, h, w] of the pictures that are
        there.

        `view` int64 [P]: which view a picture shows, `owner` int64 [P]: which moment it belongs to (each pair once);
        `instruction` [N, width]; `hidden` bool [L, V]: what a look leaves out, where a majority is left. The state of a
        moment without pictures means nothing.
        """
        condition = instruction[owner] + self.view_embedding[view]
        tokens = self.view_token(maps, condition) + self.view_embedding[view]
        shape = (instruction.shape[0], len(self.config.views))
        dense = tokens.new_zeros(*shape, tokens.shape[-1]).index_put((owner, view), tokens)
        present = torch.zeros(shape, dtype=torch.bool, device=tokens.device).index_put(
            (owner, view), torch.ones_like(owner, dtype=torch.bool)
        )
        several = present.sum(dim=1, keepdim=True) >= MAJORITY
        kept = (present & ~(hidden[:, None] & several)).flatten(0, 1)
        looks = hidden.shape[0]
        states = self.fusion(dense.repeat(looks, 1, 1), kept, instruction.repeat(looks, 1))
        return states.unflatten(0, (looks, -1))

    def fused_by(self, kind: fusion.Fusion) -> ProgressNet:
        """This very net, its weights shared, whose perspectives become one potential in another way."""
        other, kept = copy.copy(self), self.config.interval_scale if kind == self.config.fusion else None
        other.config = replace(self.config, fusion=kind, interval_scale=kept)
        return other

    def states_of(self, episode: Episode) -> Tensor:
        """States [up to T, width] of the frames of an episode that show anything, in the light of its instruction:
        they do not depend on the past."""
        names = tuple(episode.views)
        frames = np.stack([episode.views[name] for name in names], axis=1)
        blocks = (frames[start : start + BLOCK] for start in range(0, len(frames), BLOCK))
        begun = [self.begin(Views(names=names, frames=some), [episode.instruction] * len(some)) for some in blocks]
        return torch.cat([memory.previous[memory.opened] for memory in begun])

    def calibrated(
        self, distribution: StateDistribution, usual_ood: float, interval_scale: float | None = None
    ) -> ProgressNet:
        """This very net, its weights shared, with that distribution of states, its median score and that interval."""
        other = copy.copy(self)
        other._modules = {**self._modules, "heads": copy.copy(self.heads)}
        other.heads._modules = {**self.heads._modules, "distribution": distribution}
        other.config = replace(self.config, usual_ood=usual_ood, interval_scale=interval_scale)
        return other

    # The contract

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> FrameMemory:
        """Open N episodes at their first frames; `goal` shows for each how the task looks when done, `reference` how it
        was done another time.

        Raises `UserError` when lengths differ, a view is unknown to the model, a goal or a moment of a reference shows
        nothing, or the model's fusion needs goals or references and there are none.
        """
        for what, given in (("goal", goal), ("reference", reference)):
            if len(instructions) != len(views) or (given is not None and len(given) != len(views)):
                raise UserError(
                    f"begin needs one instruction (and {what}) an environment: got views of {len(views)}, "
                    f"{len(instructions)} instructions" + ("" if given is None else f", {len(given)} {what}s")
                )
        self._need(goal, reference)
        with judging(self):
            instruction = self.read(instructions)
            state, looks, seen = self._look(views, instruction)
            shown = None if goal is None else self._goal(goal, instruction)
            followed = {} if reference is None else self._followed(reference)
        return FrameMemory.fresh(instruction, state, self._without(looks, state), seen, shown, **followed)

    def _need(self, goal: Views | None, reference: Reference | None) -> None:
        """Raises `UserError` when the fusion is a single perspective whose anchor is not there."""
        anchors = {
            "backward": (goal, "the goal picture", "goals=true"),
            "reference": (reference, "a reference demonstration", "one_shot.by=reference"),
        }
        given, what, how = anchors.get(self.config.fusion, (True, "", ""))
        if given is None:
            others = ", ".join(kind for kind in fusion.FUSIONS if kind not in anchors)
            raise UserError(
                f"fusion={self.config.fusion} looks from {what} and there is none: give one (evaluate {how}), or "
                f"choose another fusion: {others}"
            )

    def _followed(self, reference: Reference) -> dict[str, Tensor]:
        """What memory holds of references: the way, and the belief that its first moment is now."""
        progress = torch.from_numpy(reference.progress)
        instruction = self.read(reference.instructions).repeat_interleave(progress.shape[1], dim=0)
        states, _, seen = self._look(reference.views, instruction)
        if not seen.all():
            row, moment = divmod(int((~seen).nonzero()[0]), progress.shape[1])
            views = ", ".join(self.config.views)
            raise UserError(f"moment {moment} of the reference of environment {row} shows none of {views}{BLANK}")
        states = states.view(*progress.shape, -1)
        progress = progress.to(states)
        belief = torch.zeros_like(progress)
        belief[:, 0] = 1
        beliefs = {"belief": belief, "passed": around(belief)}
        return {"reference": states, "reference_progress": progress, **beliefs}

    def _goal(self, goal: Views, instruction: Tensor) -> Tensor:
        state, _, shown = self._look(goal, instruction)
        if not shown.all():
            row = int((~shown).nonzero()[0])
            raise UserError(f"the goal of environment {row} shows none of {', '.join(self.config.views)}{BLANK}")
        return state

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, FrameMemory]:
        """Judge one new frame set a row, fusing what is seen from the previous, the first and the goal frame, and where
        on its reference's way it is.

        A row without any present view is invalid and carries its last judgement; a row that has shown nothing before
        opens with this frame. Raises `UserError` when lengths differ or a view is unknown to the model.
        """
        assert isinstance(memory, FrameMemory)
        if len(views) != len(memory):
            raise UserError(f"advance needs views of {len(memory)} environments, got {len(views)}")
        with judging(self):
            state, looks, seen = self._look(views, memory.instruction)
            memory = memory.opened_by(state, self._without(looks, state), seen)
            located = self._located(memory, state)
            anchors = [memory.previous, memory.first] + ([] if memory.goal is None else [memory.goal])
            said = self.heads(torch.stack(anchors), state)
            fused = fusion.judged(
                self.config.fusion,
                memory.potential(),
                memory.doubt.cpu().numpy(),
                said.hop.cpu().numpy(),
                said.error.cpu().numpy(),
                None if located is None else located.potential.cpu().numpy(),
            )
            done = self._done(said, memory.first_looks, looks) if located is None else located.done
            after = memory.updated(seen, **self._after(fused, state, said, done, located))
        ood = said.ood.cpu().numpy()
        return after.progress(seen, widened(fused.spread, ood, self.config.usual_ood), ood), after

    def _located(self, memory: FrameMemory, state: Tensor) -> Located | None:
        """Where on its reference's way each row is; None without references."""
        if memory.reference is None:
            return None
        assert memory.belief is not None and memory.passed is not None and memory.reference_progress is not None
        return locate(memory.belief, memory.passed, memory.reference, memory.reference_progress, state)

    def _done(self, said: Said, first_looks: Tensor | None, looks: Tensor | None) -> Tensor:
        """Probability [N] that the task is done, where no reference is followed."""
        done = torch.sigmoid(said.completion)
        if looks is None:
            return done
        assert first_looks is not None
        return agreed(done, torch.sigmoid(self.heads.completion(first_looks, looks)))

    def _after(
        self,
        fused: fusion.Fused,
        state: Tensor,
        said: Said,
        done: Tensor,
        located: Located | None,
        rows: slice = slice(None),
    ) -> dict[str, Tensor]:
        """What memory holds after a judgement of these rows of it."""
        on_way = {} if located is None else {"belief": located.belief[rows], "passed": located.passed[rows]}
        return {
            "previous": state[rows],
            "phi": torch.from_numpy(fused.potential[rows]).to(state.device),
            "doubt": torch.from_numpy(fused.doubt[rows]).to(state.device),
            "success": done[rows],
            "stage": said.step[rows].argmax(dim=-1),
            **on_way,
        }

    def _look(self, views: Views, instruction: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """States [N, width] of the moments shown, those [N, V, width] without each of the net's views (None: nowhere is
        a majority left), and where anything was shown, bool [N]. Reads present views only."""
        for name in views.names:
            if name not in self.config.views:
                raise UserError(choices(name, self.config.views, "view"))
        present = there(views)
        owner, column = np.nonzero(present)
        known = np.array([self.config.views.index(name) for name in views.names])
        several = present.sum(axis=1).max(initial=0) >= MAJORITY
        hidden = torch.eye(len(self.config.views) + 1, dtype=torch.bool)[: None if several else 1, 1:]
        pictures = Pictures(frames=views.frames, owner=owner, column=column, view=known[column])
        states = self._seen(pictures, instruction, hidden.to(instruction.device))
        seen = torch.from_numpy(present.any(axis=1)).to(instruction.device)
        return states[0], states[1:].transpose(0, 1) if several else None, seen

    def _without(self, looks: Tensor | None, state: Tensor) -> Tensor:
        """States [N, V, width] without each of the views: where none can be doubted, what all of them show."""
        return state[:, None].expand(-1, len(self.config.views), -1) if looks is None else looks

    def _seen(self, pictures: Pictures, instruction: Tensor, hidden: Tensor) -> Tensor:
        """States [L, N, width] of the moments that `pictures` show, looked at L times."""
        return self.states(self._maps(pictures), *pictures.indices(instruction.device), instruction, hidden)

    def _maps(self, pictures: Pictures) -> Tensor:
        device = self.view_embedding.device
        chunks = (pictures[i : i + CHUNK] for i in range(0, max(len(pictures), 1), CHUNK))
        maps = [self.encoder.look(self.encoder.prepare(chunk.pixels().to(device))) for chunk in chunks]
        return maps[0] if len(maps) == 1 else torch.cat(maps)


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
