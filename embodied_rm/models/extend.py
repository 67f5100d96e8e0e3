"""A trained model as the beginning of another: it learns on, of more views and steps if need be."""

from __future__ import annotations

from dataclasses import replace

import torch

from embodied_rm.errors import UserError
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import ProgressNet


def extended(start: ProgressNet, needed: ProgressNet) -> ProgressNet:
    """A copy of `start` that also knows the views of `needed` and has a step head as large.

    A new view begins as the mean of those that are known; a step head that is too small begins anew. Raises
    `UserError` where `start` is an exported model.
    """
    if isinstance(start, OnnxNet):
        raise UserError("an exported model cannot learn any more: start from the checkpoint it was made from")
    views = tuple(dict.fromkeys([*start.config.views, *needed.config.views]))
    max_steps = max(start.config.max_steps, needed.config.max_steps)
    # What was calibrated holds of the old weights only.
    net = ProgressNet(replace(start.config, views=views, max_steps=max_steps, usual_ood=None, interval_scale=None))
    grown = net.state_dict()
    for name, tensor in start.state_dict().items():
        if name in grown and grown[name].shape == tensor.shape:
            grown[name] = tensor
    known = start.view_embedding.detach()
    unknown = known.mean(dim=0, keepdim=True).expand(len(views) - len(known), -1)
    grown["view_embedding"] = torch.cat([known, unknown])
    net.load_state_dict(grown)
    return net
