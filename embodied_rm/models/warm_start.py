"""A trained model as the beginning of another: it learns on, of more views and steps if need be."""

from __future__ import annotations

from dataclasses import replace

import torch

from embodied_rm.errors import UserError
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import ProgressNet


def warm_start(source: ProgressNet, target: ProgressNet) -> ProgressNet:
    """A copy of `start` that also knows the views of `needed` and has a step head as large.

    A new view begins as the mean of those that are known; a step head that is too small begins anew. Raises
    `UserError` where `start` is an exported model.
    """
    if isinstance(source, OnnxNet):
        raise UserError("an exported model cannot learn any more: start from the checkpoint it was made from")
    views = tuple(dict.fromkeys([*source.config.views, *target.config.views]))
    max_subtasks = max(source.config.max_subtasks, target.config.max_subtasks)
    # What was calibrated holds of the old weights only.
    net = ProgressNet(
        replace(source.config, views=views, max_subtasks=max_subtasks, median_ood=None, interval_scale=None)
    )
    state_dict = net.state_dict()
    for name, tensor in source.state_dict().items():
        if name in state_dict and state_dict[name].shape == tensor.shape:
            state_dict[name] = tensor
    known_embedding = source.view_embedding.detach()
    new_embedding = known_embedding.mean(dim=0, keepdim=True).expand(len(views) - len(known_embedding), -1)
    state_dict["view_embedding"] = torch.cat([known_embedding, new_embedding])
    net.load_state_dict(state_dict)
    return net
