"""The state of a training run: model, optimizer, clock. It can be put away and taken up again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from embodied_rm.checkpoint_io import MANIFEST_NAME, add_prefix, load_into, load_tensors, save_tensors, strip_prefix
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.train.sharding import distribute_like, full_tensor, local_shard

ARCHITECTURE = "training_state"
TEXT_TOWER_LR_SCALE = 0.1
"""Learning rate of the text tower, as a share of all others'. At the full rate it first learns to tell tasks apart and
forgets the words that do not help with that, such as colors; random, it tells them apart already."""


def is_text_tower(name: str) -> bool:
    """Whether a parameter of that name belongs to an open_clip text tower."""
    return ".clip." in f".{name}" and ".clip.visual." not in f".{name}"


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter is a matrix between two layers, and not of an open_clip tower or an embedding."""
    return parameter.ndim == 2 and ".clip." not in f".{name}" and not name.endswith("embedding")


def clip_gradients(gradients: Sequence[Tensor], max_norm: float, group: DistContext) -> float:
    """Shorten the gradients, all together, to that norm; what it was. Of those that are cut, everybody has a part; the
    norm is of double precision, in which it does not matter how they are."""
    local_grads, sharded_grads = [
        [local_shard(g) for g in gradients if isinstance(g, DTensor) == is_sharded] for is_sharded in (False, True)
    ]
    squared_norms = torch.stack(
        [torch.linalg.vector_norm(g, dtype=torch.float64) ** 2 for g in (*sharded_grads, *local_grads)]
    )
    if sharded_grads:
        group.all_reduce([squared_norms[: len(sharded_grads)]])
    norm = squared_norms.sum().sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0).float()
    for gradient in (*sharded_grads, *local_grads):
        gradient.mul_(scale)
    return norm.item()


class TrainState:
    """Muon over the matrices between layers and AdamW over all other trainable parameters of a module, weight decay on
    matrices only, gradients clipped to norm 1.

    Muon: K. Jordan et al., 2024, with the step sizes of Liu et al., arXiv 2502.16982.
    """

    def __init__(self, module: nn.Module, *, weight_decay: float) -> None:
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        param_groups = []
        for is_text in (False, True):
            selected = [p for name, p in trainable if is_text == is_text_tower(name) and not is_hidden_matrix(name, p)]
            lr_scale = TEXT_TOWER_LR_SCALE if is_text else 1.0
            for is_sharded in (False, True):  # the fused optimizer takes no mixture
                params = [p for p in selected if is_sharded == isinstance(p, DTensor)]
                param_groups += [
                    {"params": [p for p in params if p.ndim > 1], "weight_decay": weight_decay, "pace": lr_scale},
                    {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0, "pace": lr_scale},
                ]
        muon_groups = [{"params": [p for name, p in trainable if is_hidden_matrix(name, p)], "pace": 1.0}]
        self.module = module
        self._parameters = [p for _, p in trainable]
        self._optimizers: dict[str, torch.optim.Optimizer] = {
            "adamw": torch.optim.AdamW(param_groups, betas=(0.9, 0.99), fused=True),
            "muon": torch.optim.Muon(muon_groups, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        }
        self.steps = 0
        self.elapsed_s = 0.0
        """Time spent on these updates, in all sessions."""

    def update(self, losses: Iterable[Tensor], learning_rate: float, group: DistContext = SINGLE_PROCESS) -> float:
        """One step down the sum of the gradients of all losses, and of those that others in the group have; the norm of
        that sum before it was clipped. They are asked for one by one. Raises `UserError`, nothing changed, when one is
        not a number."""
        self.module.zero_grad(set_to_none=True)
        for loss in losses:
            if not bool(torch.isfinite(loss)):
                raise UserError(
                    f"the loss became {loss.item()} at update {self.steps + 1}; "
                    f"learning_rate={learning_rate:g} is too high for these data"
                )
            loss.backward()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        group.all_reduce([g for g in gradients if not isinstance(g, DTensor)])  # those that are cut are summed already
        norm = clip_gradients(gradients, 1.0, group)
        for optimizer in self._optimizers.values():
            for param_group in optimizer.param_groups:
                param_group["lr"] = learning_rate * param_group["pace"]
            optimizer.step()
        self.steps += 1
        return norm

    def save(self, folder: Path, settings: Mapping[str, object], group: DistContext = SINGLE_PROCESS) -> None:
        """Put everything away, whole: the first of a group does, which all of it has to ask for. `settings`: the
        configuration, which must be the same when it is taken up again."""
        tensors = add_prefix("module", self.module.state_dict())
        for name in self._optimizers:
            tensors |= add_prefix(name, self._optimizer_state(name))
        for name in sorted(tensors):  # everybody asks in the same order, whatever that of a file was
            full = full_tensor(tensors[name])
            tensors[name] = full if group.rank == 0 else torch.empty(0)
        if group.rank:
            return
        manifest = {
            "architecture": ARCHITECTURE,
            "settings": dict(settings),
            "updates": self.steps,
            "seconds": self.elapsed_s,
        }
        save_tensors(folder, tensors, manifest)

    def resume(self, folder: Path, settings: Mapping[str, object]) -> None:
        """Take up what was saved in the folder; nothing happens when there is none.

        Raises `CheckpointError` when the saved run is damaged or had another configuration.
        """
        if not (folder / MANIFEST_NAME).exists():
            return
        tensors, manifest = load_tensors(folder, ARCHITECTURE)
        if manifest["settings"] != settings:
            saved_settings = manifest["settings"]
            changed = sorted(
                k for k in saved_settings.keys() | settings.keys() if saved_settings.get(k) != settings.get(k)
            )
            raise CheckpointError(f"{folder}: the interrupted run had another configuration: {', '.join(changed)}")
        stored, current = strip_prefix("module", tensors), self.module.state_dict()
        sharded = {
            n: distribute_like(t, stored[n]) for n, t in current.items() if isinstance(t, DTensor) and n in stored
        }
        load_into(self.module, {**stored, **sharded}, folder)
        for name in self._optimizers:
            self._load_optimizer_state(name, strip_prefix(name, tensors))
        self.steps, self.elapsed_s = manifest["updates"], manifest["seconds"]

    def _optimizer_state(self, optimizer_name: str) -> dict[str, Tensor]:
        """What an optimizer remembers of each parameter, by "<what>.<number of the parameter>"."""
        states = self._optimizers[optimizer_name].state_dict()["state"]
        return {f"{key}.{i}": value for i, state in states.items() for key, value in state.items()}

    def _load_optimizer_state(self, optimizer_name: str, stored: Mapping[str, Tensor]) -> None:
        """Give an optimizer back what `_moments` said."""
        optimizer = self._optimizers[optimizer_name]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in stored.items():
            name, i = key.rsplit(".", 1)
            state.setdefault(int(i), {})[name] = (
                value if value.ndim == 0 else distribute_like(parameters[int(i)], value)
            )
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})

    @staticmethod
    def discard(folder: Path) -> None:
        """Remove what was saved, if anything."""
        if folder.exists():
            shutil.rmtree(folder)
