"""The state of a training run: model, optimiser, clock. It can be put away and taken up again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from embodied_rm.checkpoint_io import MANIFEST, load_into, load_tensors, save_tensors, under_prefix, with_prefix
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.models.sharding import laid_out_as, local, whole

ARCHITECTURE = "training_state"
READING_PACE = 0.1
"""Learning rate of the text tower, as a share of all others'. At the full rate it first learns to tell tasks apart and
forgets the words that do not help with that, such as colours; random, it tells them apart already."""


def reads(name: str) -> bool:
    """Whether a parameter of that name belongs to an open_clip text tower."""
    return ".clip." in f".{name}" and ".clip.visual." not in f".{name}"


def mixes(name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter is a matrix between two layers, and not of an open_clip tower or an embedding."""
    return parameter.ndim == 2 and ".clip." not in f".{name}" and not name.endswith("embedding")


def clip(gradients: Sequence[Tensor], longest: float, group: Group) -> float:
    """Shorten the gradients, all together, to that norm; what it was. Of those that are cut, everybody has a part; the
    norm is of double precision, in which it does not matter how they are."""
    mine, cut = [[local(g) for g in gradients if isinstance(g, DTensor) == kind] for kind in (False, True)]
    squared = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) ** 2 for g in (*cut, *mine)])
    if cut:
        group.all_reduce([squared[: len(cut)]])
    norm = squared.sum().sqrt()
    share = (longest / (norm + 1e-6)).clamp(max=1.0).float()
    for gradient in (*cut, *mine):
        gradient.mul_(share)
    return norm.item()


class Learner:
    """Muon over the matrices between layers and AdamW over all other trainable parameters of a module, weight decay on
    matrices only, gradients clipped to norm 1.

    Muon: K. Jordan et al., 2024, with the step sizes of Liu et al., arXiv 2502.16982.
    """

    def __init__(self, module: nn.Module, *, weight_decay: float) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        groups = []
        for slow in (False, True):
            chosen = [p for name, p in named if slow == reads(name) and not mixes(name, p)]
            pace = READING_PACE if slow else 1.0
            for cut in (False, True):  # the fused optimiser takes no mixture
                some = [p for p in chosen if cut == isinstance(p, DTensor)]
                groups += [
                    {"params": [p for p in some if p.ndim > 1], "weight_decay": weight_decay, "pace": pace},
                    {"params": [p for p in some if p.ndim <= 1], "weight_decay": 0.0, "pace": pace},
                ]
        mixing = [{"params": [p for name, p in named if mixes(name, p)], "pace": 1.0}]
        self.module = module
        self._parameters = [p for _, p in named]
        self._optimisers: dict[str, torch.optim.Optimizer] = {
            "adamw": torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True),
            "muon": torch.optim.Muon(mixing, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        }
        self.updates = 0
        self.seconds = 0.0
        """Time spent on these updates, in all sessions."""

    def update(self, losses: Iterable[Tensor], learning_rate: float, group: Group = ALONE) -> float:
        """One step down the sum of the gradients of all losses, and of those that others in the group have; the norm of
        that sum before it was clipped. They are asked for one by one. Raises `UserError`, nothing changed, when one is
        not a number."""
        self.module.zero_grad(set_to_none=True)
        for loss in losses:
            if not bool(torch.isfinite(loss)):
                raise UserError(
                    f"the loss became {loss.item()} at update {self.updates + 1}; "
                    f"learning_rate={learning_rate:g} is too high for these data"
                )
            loss.backward()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        group.all_reduce([g for g in gradients if not isinstance(g, DTensor)])  # those that are cut are summed already
        norm = clip(gradients, 1.0, group)
        for optimiser in self._optimisers.values():
            for some in optimiser.param_groups:
                some["lr"] = learning_rate * some["pace"]
            optimiser.step()
        self.updates += 1
        return norm

    def save(self, folder: Path, settings: Mapping[str, object], group: Group = ALONE) -> None:
        """Put everything away, whole: the first of a group does, which all of it has to ask for. `settings`: the
        configuration, which must be the same when it is taken up again."""
        tensors = with_prefix("module", self.module.state_dict())
        for name in self._optimisers:
            tensors |= with_prefix(name, self._moments(name))
        for name in sorted(tensors):  # everybody asks in the same order, whatever that of a file was
            all_of_it = whole(tensors[name])
            tensors[name] = all_of_it if group.rank == 0 else torch.empty(0)
        if group.rank:
            return
        manifest = {
            "architecture": ARCHITECTURE,
            "settings": dict(settings),
            "updates": self.updates,
            "seconds": self.seconds,
        }
        save_tensors(folder, tensors, manifest)

    def resume(self, folder: Path, settings: Mapping[str, object]) -> None:
        """Take up what was saved in the folder; nothing happens when there is none.

        Raises `CheckpointError` when the saved run is damaged or had another configuration.
        """
        if not (folder / MANIFEST).exists():
            return
        tensors, manifest = load_tensors(folder, ARCHITECTURE)
        if manifest["settings"] != settings:
            before = manifest["settings"]
            changed = sorted(k for k in before.keys() | settings.keys() if before.get(k) != settings.get(k))
            raise CheckpointError(f"{folder}: the interrupted run had another configuration: {', '.join(changed)}")
        stored, now = under_prefix("module", tensors), self.module.state_dict()
        cut = {n: laid_out_as(t, stored[n]) for n, t in now.items() if isinstance(t, DTensor) and n in stored}
        load_into(self.module, {**stored, **cut}, folder)
        for name in self._optimisers:
            self._resume_moments(name, under_prefix(name, tensors))
        self.updates, self.seconds = manifest["updates"], manifest["seconds"]

    def _moments(self, optimiser: str) -> dict[str, Tensor]:
        """What an optimiser remembers of each parameter, by "<what>.<number of the parameter>"."""
        states = self._optimisers[optimiser].state_dict()["state"]
        return {f"{what}.{i}": value for i, state in states.items() for what, value in state.items()}

    def _resume_moments(self, optimiser: str, moments: Mapping[str, Tensor]) -> None:
        """Give an optimiser back what `_moments` said."""
        resumed = self._optimisers[optimiser]
        parameters = [p for group in resumed.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in moments.items():
            what, i = key.rsplit(".", 1)
            state.setdefault(int(i), {})[what] = value if value.ndim == 0 else laid_out_as(parameters[int(i)], value)
        resumed.load_state_dict({**resumed.state_dict(), "state": state})

    @staticmethod
    def discard(folder: Path) -> None:
        """Remove what was saved, if anything."""
        if folder.exists():
            shutil.rmtree(folder)
