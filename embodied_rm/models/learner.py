"""The state of a training run: model, optimiser, random numbers, clock. It can be put away and taken up again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.checkpoint_io import MANIFEST, load_into, load_tensors, save_tensors, under_prefix, with_prefix
from embodied_rm.errors import CheckpointError, UserError

ARCHITECTURE = "training_state"
READING_PACE = 0.1
"""Learning rate of the text tower, as a share of all others'. At the full rate it first learns to tell tasks apart and
forgets the words that do not help with that, such as colours; random, it tells them apart already."""


def reads(name: str) -> bool:
    """Whether a parameter of that name belongs to an open_clip text tower."""
    return ".clip." in f".{name}" and ".clip.visual." not in f".{name}"


class Learner:
    """AdamW over the trainable parameters of a module, weight decay on matrices only, gradients clipped to norm 1."""

    def __init__(self, module: nn.Module, *, weight_decay: float, seed: int) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        parameters = [p for _, p in named]
        groups = []
        for slow in (False, True):
            chosen = [p for name, p in named if slow == reads(name)]
            pace = READING_PACE if slow else 1.0
            groups += [
                {"params": [p for p in chosen if p.ndim > 1], "weight_decay": weight_decay, "pace": pace},
                {"params": [p for p in chosen if p.ndim <= 1], "weight_decay": 0.0, "pace": pace},
            ]
        self.module = module
        self._parameters = parameters
        self._optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True)
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.updates = 0
        self.seconds = 0.0
        """Time spent on these updates, in all sessions."""

    def update(self, loss: Tensor, learning_rate: float) -> None:
        """One step down the gradient. Raises `UserError`, nothing changed, when the loss is not a number."""
        if not bool(torch.isfinite(loss)):
            raise UserError(
                f"the loss became {loss.item()} at update {self.updates + 1}; "
                f"learning_rate={learning_rate:g} is too high for these data"
            )
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate * group["pace"]
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimiser.step()
        self.updates += 1

    def save(self, folder: Path, settings: Mapping[str, object]) -> None:
        """Put everything away. `settings`: the configuration, which must be the same when it is taken up again."""
        moments = {
            f"{name}.{i}": value
            for i, state in self._optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        tensors = {
            **with_prefix("module", self.module.state_dict()),
            **with_prefix("optimiser", moments),
            "generator": self.generator.get_state(),
        }
        manifest = {
            "architecture": ARCHITECTURE,
            "settings": dict(settings),
            "rng": self.rng.bit_generator.state,
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
            changed = sorted(k for k in settings if manifest["settings"].get(k) != settings[k])
            raise CheckpointError(f"{folder}: the interrupted run had another configuration: {', '.join(changed)}")
        load_into(self.module, under_prefix("module", tensors), folder)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in under_prefix("optimiser", tensors).items():
            name, i = key.rsplit(".", 1)
            parameter = self._parameters_in_order()[int(i)]
            # The fused optimiser walks memory: a moment must lie as its parameter does (channels last or not).
            laid_out = value if value.ndim == 0 else torch.empty_like(parameter).copy_(value)
            state.setdefault(int(i), {})[name] = laid_out
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})
        self.generator.set_state(tensors["generator"])
        self.rng.bit_generator.state = manifest["rng"]
        self.updates, self.seconds = manifest["updates"], manifest["seconds"]

    def _parameters_in_order(self) -> list[Tensor]:
        """The parameters as the optimiser numbers them."""
        return [p for group in self._optimiser.param_groups for p in group["params"]]

    @staticmethod
    def discard(folder: Path) -> None:
        """Remove what was saved, if anything."""
        if folder.exists():
            shutil.rmtree(folder)
