"""Initialize a net from a trained one, with further views and subtasks if needed."""

from dataclasses import replace

import torch

from embodied_rm.errors import UserError
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import ProgressNet


def warm_start(source: ProgressNet, target: ProgressNet) -> ProgressNet:
    """Copy a trained net and extend it to the views and the subtask head of another net.

    The tower, the image size and the fusion are kept. A new view embedding starts as the mean of the known ones. A
    larger subtask head starts from random weights. `UserError` if `source` is an exported model.
    """
    if isinstance(source, OnnxNet):
        raise UserError("an exported model cannot be trained: start from the checkpoint that it was exported from")
    views = tuple(dict.fromkeys([*source.config.views, *target.config.views]))
    max_subtasks = max(source.config.max_subtasks, target.config.max_subtasks)
    # The calibration belongs to the old weights.
    extended = replace(source.config, views=views, max_subtasks=max_subtasks, median_ood=None, interval_scale=None)
    net = ProgressNet(extended)
    state_dict = net.state_dict()
    for name, tensor in source.state_dict().items():
        if name in state_dict and state_dict[name].shape == tensor.shape:
            state_dict[name] = tensor
    known_embedding = source.view_embedding.detach()
    new_embedding = known_embedding.mean(dim=0, keepdim=True).expand(len(views) - len(known_embedding), -1)
    state_dict["view_embedding"] = torch.cat([known_embedding, new_embedding])
    net.load_state_dict(state_dict)
    return net
