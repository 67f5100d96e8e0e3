"""The parts of a `ProgressNet` as ONNX graphs: the same outputs with fewer operations and passes over memory.

Differences from the trained modules: a first convolution without padding takes raw image bytes, with normalization
folded into its weights; the last transformer layer computes the query token only; the pair heads multiply the two
embeddings separately.
"""

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.heads import HeadOutputs, Heads, PairHead
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.towers import Tower
from embodied_rm.models.view_fusion import ViewFusion

GRAPH_OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "text": ("instruction",),
    "embedding": ("embedding",),
    "heads": HeadOutputs._fields,
    "success": ("logit",),
}
"""Name of each graph from `export_graphs` -> names of its outputs."""


class TextGraph(nn.Module):
    """Token ids int64 [U, L] -> instruction vectors [U, width]."""

    def __init__(self, net: ProgressNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: Tensor) -> Tensor:
        """As `ProgressNet.embed_instructions`, from token ids."""
        return self.net.instruction(self.net.encoder.encode_tokens(ids))


class EmbeddingGraph(nn.Module):
    """Images uint8 [P, H, W, 3] and the other arguments of `ProgressNet.embed` -> embeddings [L, N, width]."""

    def __init__(self, net: ProgressNet) -> None:
        super().__init__()
        self.net = copy.deepcopy(net)
        self.net.fusion = ExportableViewFusion(net.fusion)  # type: ignore[assignment]
        self.takes_raw_pixels = fold_normalization(self.net.encoder)

    def forward(
        self, images: Tensor, view_index: Tensor, batch_index: Tensor, instruction: Tensor, masked_views: Tensor
    ) -> Tensor:
        """As `ProgressNet.embed`, from pixels."""
        encoder = self.net.encoder
        pixels = images.flatten(2)[:, None].float() if self.takes_raw_pixels else encoder.preprocess(images)
        return self.net.embed(encoder.encode_image(pixels), view_index, batch_index, instruction, masked_views)


def fold_normalization(encoder: Encoder) -> bool:
    """Make the first convolution take raw pixels in [0, 255], rows of colors [P, 1, H, 3 W].

    False, with nothing changed, if the convolution pads: a padded 0 is black in raw pixels only.
    """
    trunk = getattr(encoder.clip.visual, "trunk", None)
    first_stage: Any = trunk.stages[0] if isinstance(trunk, Tower) else [None]
    stem = first_stage[0]
    if not isinstance(stem, nn.Conv2d) or stem.bias is None or stem.padding != (0, 0):
        return False
    (height, width), (stride_y, stride_x) = stem.kernel_size, stem.stride
    conv = nn.Conv2d(1, stem.out_channels, (height, 3 * width), (stride_y, 3 * stride_x))
    with torch.no_grad():
        conv.weight.copy_((stem.weight * encoder.gain).permute(0, 2, 3, 1).flatten(2)[:, None])
        assert conv.bias is not None
        conv.bias.copy_(stem.bias + (stem.weight * encoder.offset).sum(dim=(1, 2, 3)))
    first_stage[0] = conv
    return True


class ExportableViewFusion(nn.Module):
    """`ViewFusion` in elementary operations; torch's fused attention kernel has no ONNX operator."""

    def __init__(self, fusion: ViewFusion) -> None:
        super().__init__()
        self.fusion = fusion

    def forward(self, tokens: Tensor, present: Tensor, instruction: Tensor) -> Tensor:
        """As `ViewFusion.forward`."""
        query = self.fusion.query.expand(tokens.shape[0], 1, -1)
        x = torch.cat([query, instruction[:, None], tokens], dim=1)
        padding = nn.functional.pad(~present, (2, 0), value=False)
        mask = torch.zeros_like(padding, dtype=x.dtype).masked_fill(padding, -torch.inf)[:, None, None]
        layers: list[Any] = list(self.fusion.encoder.layers)
        for layer in layers:
            num_queries = 1 if layer is layers[-1] else x.shape[1]
            attended = attention(layer, x, mask, num_queries)
            # On the rows of one matrix a product and its bias are one operation.
            y = (x[:, :num_queries] + attended).flatten(0, 1)
            y = y + layer.linear2(torch.relu(layer.linear1(layer.norm2(y))))
            x = y.unflatten(0, (-1, num_queries))
        return self.fusion.norm(x[:, 0])


def attention(layer: Any, x: Tensor, mask: Tensor, num_queries: int) -> Tensor:
    """Attention of the first `num_queries` tokens of `x` [N, T, width] over all; `mask` is added to the scores."""
    self_attn, (_, tokens, width) = layer.self_attn, x.shape
    qkv = nn.functional.linear(layer.norm1(x.flatten(0, 1)), self_attn.in_proj_weight, self_attn.in_proj_bias)
    per_head = qkv.view(-1, tokens, 3, self_attn.num_heads, width // self_attn.num_heads).permute(2, 0, 3, 1, 4)
    query, key, value = per_head[0][:, :, :num_queries], per_head[1], per_head[2]
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
    attended = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(0, 1).flatten(1)
    return self_attn.out_proj(attended).unflatten(0, (-1, num_queries))


class FactoredPairHead(nn.Module):
    """`PairHead` with a factored first layer: W [p, q, q - p] = (Wp - Wd) p + (Wq + Wd) q."""

    def __init__(self, head: PairHead) -> None:
        super().__init__()
        first = head.mlp[0]
        assert isinstance(first, nn.Linear)
        weight_p, weight_q, weight_difference = first.weight.detach().chunk(3, dim=1)
        self.weight_p = nn.Parameter(weight_p - weight_difference)
        self.weight_q = nn.Parameter(weight_q + weight_difference)
        self.bias = first.bias
        self.tail = head.mlp[1:]

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        """As `PairHead.forward`."""
        return self.tail(nn.functional.linear(q, self.weight_q, self.bias) + nn.functional.linear(p, self.weight_p))


def factor_heads(heads: Heads) -> Heads:
    """Return a copy of the heads with a factored first layer each."""
    factored = copy.deepcopy(heads)
    for name in ("_hop", "_completion", "_step", "_error"):
        setattr(factored, name, FactoredPairHead(getattr(heads, name)))
    return factored


class SuccessGraph(nn.Module):
    """Embeddings of the first and the current frame, [M, width] each -> success logits [M]."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, first: Tensor, current: Tensor) -> Tensor:
        """As `Heads.success_logit`."""
        return self.heads.success_logit(first, current)


def export_graphs(net: ProgressNet) -> Mapping[str, bytes]:
    """Export the graphs of `GRAPH_OUTPUTS`, serialized, for any number of images, frames and anchors.

    `UserError` if a package for ONNX is missing, the net is an exported one, or its tower cannot be exported.
    """
    if not list(net.parameters()):
        raise UserError("this model is exported already: export the checkpoint that it was exported from")
    if net.config.encoder.transformers is not None:
        raise UserError("a model with towers of `transformers` cannot be exported to ONNX: use the checkpoint itself")
    size, views, width = net.config.encoder.image_size, len(net.config.views), net.config.width
    embedding, anchors = torch.zeros(2, width), torch.zeros(2, 2, width)
    embedding_inputs = {
        "images": torch.zeros(2 * views, *size, 3, dtype=torch.uint8),
        "view_index": torch.arange(views).repeat(2),
        "batch_index": torch.arange(2).repeat_interleave(views),
        "instruction": embedding,
        "masked_views": torch.eye(views + 1, dtype=torch.bool)[:, 1:],
    }
    heads = factor_heads(net.heads)
    modules: dict[str, tuple[nn.Module, dict[str, Tensor]]] = {
        "text": (TextGraph(net), {"ids": net.encoder.tokenize(["one", "two"])}),
        "embedding": (EmbeddingGraph(net), embedding_inputs),
        "heads": (heads, {"anchors": anchors, "embedding": embedding}),
        "success": (SuccessGraph(heads), {"first": embedding, "current": embedding + 1}),
    }
    return {name: export_module(*modules[name], outputs) for name, outputs in GRAPH_OUTPUTS.items()}


def export_module(module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> bytes:
    """Export one module as a serialized graph with dynamic leading dimensions."""
    try:
        import onnxruntime  # noqa: F401  it runs the result, and an export takes too long to be in vain
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ModuleNotFoundError as error:
        needed = "writing ONNX needs onnx, onnxruntime and onnxscript"
        raise UserError(f"{needed}: pip install 'embodied-rm[onnx]'") from error
    dynamic = torch.export.Dim.DYNAMIC
    dynamic_shapes = {name: {0: dynamic, 1: dynamic} if name == "anchors" else {0: dynamic} for name in inputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter, about itself
        try:
            program = torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                dynamo=True,
                dynamic_shapes=tuple(dynamic_shapes.values()),
                input_names=list(inputs),
                output_names=list(outputs),
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"the part {type(module).__name__.lower()} cannot be written as ONNX: {reason}") from error
    assert program is not None
    return program.model_proto.SerializeToString()
