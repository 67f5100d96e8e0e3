"""`Foresight`: a `ProgressNet` that has looked at the next frames of an episode before it is asked about them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embodied_rm.models.base import Memory
from embodied_rm.models.heads import Heads, Said
from embodied_rm.models.memory import FrameMemory
from embodied_rm.models.progress_net import ProgressNet, judging
from embodied_rm.models.witness import there
from embodied_rm.types import Views


class Foresight(ProgressNet):
    """`advance` of one environment as the net's own, up to rounding, for the T frames given and in their order.

    States and heads do not depend on what is judged: of all T frames they are computed at once, several times as fast.
    """

    def __init__(self, net: ProgressNet, memory: Memory, views: Views) -> None:
        """`memory` is what comes before `views`; both are to be `foreseeable`.

        Raises `UserError` when a view is unknown to the net.
        """
        assert isinstance(memory, FrameMemory)
        nn.Module.__init__(self)
        self.config = net.config
        with judging(net):
            self._states, self._looks, self._shown = net._look(views, memory.instruction.expand(len(views), -1))
            self.heads = ForeseenHeads(net.heads, memory, self._states, self._looks)  # type: ignore[assignment]
        self._next = 0
        self.eval()

    def _look(self, views: Views, instruction: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        now = slice(self._next, self._next + 1)
        self._next += 1
        self.heads.now = now  # type: ignore[assignment]
        return self._states[now], None if self._looks is None else self._looks[now], self._shown[now]


class ForeseenHeads:
    """As `heads.Heads`: what they say of the frame `now`."""

    def __init__(self, heads: Heads, memory: FrameMemory, states: Tensor, looks: Tensor | None) -> None:
        """`states` [T, width] follow each other, the first of them follows `memory`; `looks` [T, V, width]: the same
        without each of the views."""
        self.now = slice(0, 1)
        anchors = [torch.cat([memory.previous, states[:-1]]), memory.first.expand_as(states)]
        if memory.goal is not None:
            anchors.append(memory.goal.expand_as(states))
        self._said: Said = heads(torch.stack(anchors), states)
        self._doubted = None if looks is None else heads.completion(memory.first_looks.expand_as(looks), looks)

    def __call__(self, anchors: Tensor, now: Tensor) -> Said:
        """Of one row, whose anchors and state are known."""
        hop, *others = self._said
        return Said(hop[:, self.now], *(said[self.now] for said in others))

    def completion(self, first: Tensor, now: Tensor) -> Tensor:
        """Of that row without each of the views, [1, V]."""
        assert self._doubted is not None
        return self._doubted[self.now]


def foreseeable(memory: Memory, views: Views) -> bool:
    """Whether `Foresight` is for these: one row that has seen a frame, and something to see in every frame to come."""
    opened = isinstance(memory, FrameMemory) and len(memory) == 1 and bool(memory.opened.all())
    return opened and bool(there(views).any(axis=1).all())
