"""`Foresight`: a `ProgressNet` that has looked at the next frames of an episode before it is asked about them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embodied_rm.models.base import Memory
from embodied_rm.models.heads import Heads, Said
from embodied_rm.models.memory import FrameMemory
from embodied_rm.models.progress_net import ProgressNet, judging
from embodied_rm.types import Views


class Foresight(ProgressNet):
    """`advance` of one environment as the net's own, up to rounding, for the T frames given and in their order.

    States and heads do not depend on what is judged: of all T frames they are computed at once, several times as fast.
    """

    def __init__(self, net: ProgressNet, memory: Memory, views: Views) -> None:
        """`memory`, of one row that has seen a frame, is what comes before `views`; all views are there.

        Raises `UserError` when a view is unknown to the net.
        """
        assert isinstance(memory, FrameMemory) and len(memory) == 1
        assert bool(memory.opened.all()) and views.present is None
        nn.Module.__init__(self)
        self.config = net.config
        with judging(net):
            self._states, self._shown = net._look(views, memory.instruction.expand(len(views), -1))
            self.heads = ForeseenHeads(net.heads, memory, self._states)  # type: ignore[assignment]
        self._next = 0
        self.eval()

    def _look(self, views: Views, instruction: Tensor) -> tuple[Tensor, Tensor]:
        now = slice(self._next, self._next + 1)
        self._next += 1
        self.heads.now = now  # type: ignore[assignment]
        return self._states[now], self._shown[now]


class ForeseenHeads:
    """As `heads.Heads`: what they say of the frame `now`."""

    def __init__(self, heads: Heads, memory: FrameMemory, states: Tensor) -> None:
        """`states` [T, width] follow each other, the first of them follows `memory`."""
        self.now = slice(0, 1)
        anchors = [torch.cat([memory.previous, states[:-1]]), memory.first.expand_as(states)]
        if memory.goal is not None:
            anchors.append(memory.goal.expand_as(states))
        self._said: Said = heads(torch.stack(anchors), states)

    def __call__(self, anchors: Tensor, now: Tensor) -> Said:
        """Of one row, whose anchors and state are known."""
        hop, *others = self._said
        return Said(hop[:, self.now], *(said[self.now] for said in others))
