"""What a `ProgressNet` says of the next frames of an episode, all of which it looks at before it judges the first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm import fusion
from embodied_rm.models.heads import Said
from embodied_rm.models.memory import FrameMemory
from embodied_rm.models.ood import widened
from embodied_rm.models.progress_net import ProgressNet, judging
from embodied_rm.models.reference import Located
from embodied_rm.models.witness import there
from embodied_rm.types import Progress, Views


def foreseeable(memory: FrameMemory, views: Views) -> bool:
    """Whether `foreseen` is for these: one row that has seen a frame, and something to see in every frame to come."""
    return len(memory) == 1 and bool(memory.opened.all()) and bool(there(views).any(axis=1).all())


def foreseen(net: ProgressNet, memory: FrameMemory, views: Views) -> tuple[Progress, FrameMemory]:
    """`advance` of one environment for the T frames given, in their order and up to rounding; both `foreseeable`.

    States and heads do not depend on what is judged: of all T frames they are computed at once. What is carried from
    frame to frame are two numbers and, on a reference's way, a belief. Raises `UserError` when a view is unknown.
    """
    with judging(net):
        states, looks, seen = net._look(views, memory.instruction.expand(len(views), -1))
        anchors = [torch.cat([memory.previous, states[:-1]]), memory.first.expand_as(states)]
        if memory.goal is not None:
            anchors.append(memory.goal.expand_as(states))
        said = net.heads(torch.stack(anchors), states)
        located = way(net, memory, states)
        first_looks = None if looks is None else memory.first_looks.expand_as(looks)
        done = net._done(said, first_looks, looks) if located is None else located.done
        fused = in_turn(net, memory, said, located)
        after = memory.updated(seen[-1:], **net._after(fused, states, said, done, located, slice(-1, None)))
    ood = said.ood.cpu().numpy()
    return Progress(
        value=fused.potential,
        valid=np.ones(len(states), bool),
        stage=said.step.argmax(dim=-1).cpu().numpy(),
        success=done.cpu().numpy(),
        spread=widened(fused.spread, ood, net.config.usual_ood),
        ood=ood,
    ), after


def way(net: ProgressNet, memory: FrameMemory, states: Tensor) -> Located | None:
    """Where on its reference's way the row is at each of the T moments; None without a reference."""
    found: list[Located] = []
    for t in range(len(states)):
        here = net._located(memory, states[t : t + 1])
        if here is None:
            return None
        memory = replace(memory, belief=here.belief, passed=here.passed)
        found.append(here)
    return Located(**{name: torch.cat([getattr(here, name) for here in found]) for name in vars(found[0])})


def in_turn(net: ProgressNet, memory: FrameMemory, said: Said, located: Located | None) -> fusion.Fused:
    """The T potentials, one after the other: each is the next one's anchor."""
    hops, errors = said.hop.cpu().numpy(), said.error.cpu().numpy()
    found = None if located is None else located.potential.cpu().numpy()
    potential, doubt = memory.potential(), memory.doubt.cpu().numpy()
    steps: list[fusion.Fused] = []
    for t in range(len(errors)):
        now = slice(t, t + 1)
        on_way = None if found is None else found[now]
        steps.append(fusion.judged(net.config.fusion, potential, doubt, hops[:, now], errors[now], on_way))
        potential, doubt = steps[-1].potential, steps[-1].doubt
    return fusion.Fused(*(np.concatenate(column) for column in zip(*steps, strict=True)))
