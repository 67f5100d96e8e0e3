"""State of a training run (model, optimizers, elapsed time, held-out curve) that can be saved and resumed."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embodied_rm.checkpoint_io import MANIFEST_NAME, add_prefix, load_into, load_tensors, save_tensors, strip_prefix
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.interrupts import defer_interrupts
from embodied_rm.training.held_out import HeldOutCurve
from embodied_rm.training.muon import Muon
from embodied_rm.training.sharding import distribute_like, full_tensor, is_sharded, local_shard

ARCHITECTURE = "training_state"
BEST_PREFIX = "best"  # prefix of the best weights so far among the saved tensors
TEXT_LR_SCALE = 0.1
"""Learning rate factor of the text tower. At the full rate it first learns to distinguish tasks, which its random
initialization does already, and forgets words that do not help with that, such as colors."""


def parameter_part(name: str) -> str:
    """Return the part of a net that a parameter of that name belongs to: "image", "text" (encoder) or "heads"."""
    if ".clip." not in f".{name}":
        return "heads"
    return "image" if ".clip.visual." in f".{name}" else "text"


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Return whether a parameter is a hidden matrix outside of open_clip towers and embeddings."""
    return parameter.ndim == 2 and ".clip." not in f".{name}" and not name.endswith("embedding")


def clip_gradients(gradients: Sequence[Tensor], max_norm: float, group: DistContext) -> float:
    """Clip the global norm of the gradients in place and return the norm before clipping.

    The norm is computed in float64, so the result does not depend on how gradients are sharded.
    """
    local_grads, sharded_grads = [
        [local_shard(g) for g in gradients if is_sharded(g) == sharded] for sharded in (False, True)
    ]
    ordered_grads = (*sharded_grads, *local_grads)
    squared_norms = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) ** 2 for g in ordered_grads])
    if sharded_grads:
        group.all_reduce([squared_norms[: len(sharded_grads)]])
    norm = squared_norms.sum().sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0).float()
    for gradient in ordered_grads:
        gradient.mul_(scale)
    return norm.item()


class TrainState:
    """Module with Muon for hidden matrices and AdamW for all other trainable parameters.

    Weight decay applies to matrices only; gradients are clipped to norm 1. Muon: K. Jordan et al., 2024, with the step
    sizes of Liu et al., arXiv 2502.16982.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        weight_decay: float,
        image_lr_scale: float = 1.0,
        held_out: HeldOutCurve | None = None,
    ) -> None:
        """Start a training.

        `image_lr_scale`: learning rate of the image encoder, as a fraction of that of the heads. `held_out`: the curve
        of the module on held-out episodes; None: there is none.
        """
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        param_groups = []
        for part, lr_scale in {"heads": 1.0, "image": image_lr_scale, "text": TEXT_LR_SCALE}.items():
            selected = [p for name, p in trainable if part == parameter_part(name) and not is_hidden_matrix(name, p)]
            for sharded in (False, True):  # the fused optimizer supports no mixture
                params = [p for p in selected if is_sharded(p) == sharded]
                param_groups += [
                    {"params": [p for p in params if p.ndim > 1], "weight_decay": weight_decay, "lr_scale": lr_scale},
                    {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0, "lr_scale": lr_scale},
                ]
        muon_groups = [{"params": [p for name, p in trainable if is_hidden_matrix(name, p)], "lr_scale": 1.0}]
        self.module, self.held_out = module, held_out
        self._parameters = [p for _, p in trainable]
        self._optimizers: dict[str, torch.optim.Optimizer] = {
            "adamw": torch.optim.AdamW(param_groups, betas=(0.9, 0.99), fused=True),
            "muon": Muon(muon_groups, weight_decay=weight_decay),
        }
        self.steps = 0
        self.elapsed_s = 0.0
        """Training time of all sessions, s."""

    def update(self, losses: Iterable[Tensor], learning_rate: float, group: DistContext = SINGLE_PROCESS) -> float:
        """Take one optimizer step on the summed gradients of all losses (microbatches, one by one) of all processes.

        Returns the gradient norm before clipping. `UserError` if a loss is not finite; the weights are unchanged.
        """
        self.module.zero_grad(set_to_none=True)
        for loss in losses:
            if not bool(torch.isfinite(loss)):
                problem = f"the loss became {loss.item()} at step {self.steps + 1}"
                raise UserError(f"{problem}; learning_rate={learning_rate:g} is too high for these data")
            loss.backward()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        group.all_reduce([g for g in gradients if not is_sharded(g)])  # FSDP sums sharded ones
        norm = clip_gradients(gradients, 1.0, group)
        with defer_interrupts():  # the state at an interruption is that of whole steps
            for optimizer in self._optimizers.values():
                for param_group in optimizer.param_groups:
                    param_group["lr"] = learning_rate * param_group["lr_scale"]
                optimizer.step()
            self.steps += 1
        return norm

    def save(self, folder: Path, settings: Mapping[str, object], group: DistContext = SINGLE_PROCESS) -> None:
        """Save the unsharded state and the settings that a resumed run must share.

        Rank 0 writes; all processes must call this.
        """
        tensors = add_prefix("module", self.module.state_dict())
        for name in self._optimizers:
            tensors |= add_prefix(name, self._optimizer_state(name))
        if self.held_out is not None:
            tensors |= add_prefix(BEST_PREFIX, self.held_out.best_weights)
        for name in sorted(tensors):  # the same order of collectives in all processes
            full = full_tensor(tensors[name])
            tensors[name] = full if group.rank == 0 else torch.empty(0)
        if group.rank:
            return
        manifest: dict[str, Any] = {"architecture": ARCHITECTURE, "settings": dict(settings)}
        if self.held_out is not None:
            manifest["held_out"] = self.held_out.rows
        save_tensors(folder, tensors, {**manifest, "steps": self.steps, "elapsed_s": self.elapsed_s})

    def resume(self, folder: Path, settings: Mapping[str, object]) -> None:
        """Load the state saved in a folder, if any; `CheckpointError` if it is damaged or has other settings."""
        if not (folder / MANIFEST_NAME).exists():
            return
        tensors, manifest = load_tensors(folder, ARCHITECTURE)
        if (saved := manifest["settings"]) != settings:
            changed = sorted(k for k in saved.keys() | settings.keys() if saved.get(k) != settings.get(k))
            raise CheckpointError(f"{folder}: the interrupted run had another configuration: {', '.join(changed)}")
        stored = strip_prefix("module", tensors)
        shards = {n: t for n, t in self.module.state_dict().items() if is_sharded(t) and n in stored}
        sharded = {name: distribute_like(tensor, stored[name]) for name, tensor in shards.items()}
        load_into(self.module, {**stored, **sharded}, folder)
        for name in self._optimizers:
            self._load_optimizer_state(name, strip_prefix(name, tensors))
        if self.held_out is not None:
            self.held_out.load(manifest["held_out"], strip_prefix(BEST_PREFIX, tensors))
        self.steps, self.elapsed_s = manifest["steps"], manifest["elapsed_s"]

    def _optimizer_state(self, optimizer_name: str) -> dict[str, Tensor]:
        """Return the state tensors of an optimizer by "<name>.<index of the parameter>"."""
        states = self._optimizers[optimizer_name].state_dict()["state"]
        return {f"{key}.{i}": value for i, state in states.items() for key, value in state.items()}

    def _load_optimizer_state(self, optimizer_name: str, stored: Mapping[str, Tensor]) -> None:
        """Load state tensors from `_optimizer_state` into an optimizer."""
        optimizer = self._optimizers[optimizer_name]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in stored.items():
            name, i = key.rsplit(".", 1)
            placed = value if value.ndim == 0 else distribute_like(parameters[int(i)], value)
            state.setdefault(int(i), {})[name] = placed
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})

    @staticmethod
    def discard(folder: Path) -> None:
        """Remove the saved state, if there is one."""
        if folder.exists():
            shutil.rmtree(folder)
