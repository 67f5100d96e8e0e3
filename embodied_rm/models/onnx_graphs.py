"""The parts of a `ProgressNet` as ONNX graphs: the same numbers from fewer operations and passes over memory.

What differs from the modules that learn: the first convolution, where it pads nothing, takes the bytes of a picture as
they lie and has the normalisation in its weights, the last transformer layer works only for the query that is read, and
the pair heads multiply the two moments apart from each other.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.heads import Heads, PairHead, Said, expected_error
from embodied_rm.models.ood import ood_score
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.state import StateFusion
from embodied_rm.models.towers import Tower

GRAPHS: Mapping[str, tuple[str, ...]] = {
    "read": ("vector",),
    "state": ("state",),
    "heads": Said._fields,
    "completion": ("logit",),
}
"""What `onnx_graphs` gives, by name -> what each tells."""


class Read(nn.Module):
    """Token ids int64 [U, L] -> instruction vectors [U, width]."""

    def __init__(self, net: ProgressNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: Tensor) -> Tensor:
        """As `ProgressNet.read`."""
        return self.net.instruction(self.net.encoder.read(ids))


class State(nn.Module):
    """Pictures uint8 [P, H, W, 3], their views and owners int64 [P], instructions [N, width], views that are hidden
    bool [L, V] -> states [L, N, width]."""

    def __init__(self, net: ProgressNet) -> None:
        super().__init__()
        self.net = copy.deepcopy(net)
        self.net.fusion = PlainFusion(net.fusion)  # type: ignore[assignment]
        self.plain = takes_pixels(self.net.encoder)

    def forward(self, pictures: Tensor, view: Tensor, owner: Tensor, instruction: Tensor, hidden: Tensor) -> Tensor:
        """As `ProgressNet.states`, from pixels."""
        encoder = self.net.encoder
        prepared = pictures.flatten(2)[:, None].float() if self.plain else encoder.prepare(pictures)
        return self.net.states(encoder.look(prepared), view, owner, instruction, hidden)


def takes_pixels(encoder: Encoder) -> bool:
    """Let the first convolution take pixels in [0, 255] as they lie in memory, rows of colours [P, 1, H, 3 W]; False,
    nothing changed, where it pads (0 is no colour)."""
    trunk = getattr(encoder.clip.visual, "trunk", None)
    stage: Any = trunk.stages[0] if isinstance(trunk, Tower) else [None]
    stem = stage[0]
    if not isinstance(stem, nn.Conv2d) or stem.bias is None or stem.padding != (0, 0):
        return False
    (height, width), (down, along) = stem.kernel_size, stem.stride
    rows = nn.Conv2d(1, stem.out_channels, (height, 3 * width), (down, 3 * along))
    with torch.no_grad():
        rows.weight.copy_((stem.weight * encoder.gain).permute(0, 2, 3, 1).flatten(2)[:, None])
        assert rows.bias is not None
        rows.bias.copy_(stem.bias + (stem.weight * encoder.offset).sum(dim=(1, 2, 3)))
    stage[0] = rows
    return True


class PlainFusion(nn.Module):
    """`StateFusion` written out; the fused kernel of torch has no ONNX operator."""

    def __init__(self, fusion: StateFusion) -> None:
        super().__init__()
        self.fusion = fusion

    def forward(self, tokens: Tensor, present: Tensor, instruction: Tensor) -> Tensor:
        """As `StateFusion.forward`."""
        query = self.fusion.query.expand(tokens.shape[0], 1, -1)
        x = torch.cat([query, instruction[:, None], tokens], dim=1)
        absent = nn.functional.pad(~present, (2, 0), value=False)
        mask = torch.zeros_like(absent, dtype=x.dtype).masked_fill(absent, -torch.inf)[:, None, None]
        layers: list[Any] = list(self.fusion.encoder.layers)
        for layer in layers:
            read = 1 if layer is layers[-1] else x.shape[1]
            taken = attention(layer, x, mask, read)
            # Rows of one matrix: a product and its bias are then one operation.
            y = (x[:, :read] + taken).flatten(0, 1)
            y = y + layer.linear2(torch.relu(layer.linear1(layer.norm2(y))))
            x = y.unflatten(0, (-1, read))
        return self.fusion.norm(x[:, 0])


def attention(layer: Any, x: Tensor, mask: Tensor, read: int) -> Tensor:
    """What the first `read` tokens of `x` [N, T, width] take from all of them; `mask` is added to the scores."""
    inner, (_, tokens, width) = layer.self_attn, x.shape
    rows = nn.functional.linear(layer.norm1(x.flatten(0, 1)), inner.in_proj_weight, inner.in_proj_bias)
    heads = rows.view(-1, tokens, 3, inner.num_heads, width // inner.num_heads).permute(2, 0, 3, 1, 4)
    query, key, value = heads[0][:, :, :read], heads[1], heads[2]
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
    taken = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(0, 1).flatten(1)
    return inner.out_proj(taken).unflatten(0, (-1, read))


class Pair(nn.Module):
    """`PairHead` whose first layer multiplies each moment once: W [p, q, q - p] = (Wp - Wd) p + (Wq + Wd) q."""

    def __init__(self, head: PairHead) -> None:
        super().__init__()
        first = head.mlp[0]
        assert isinstance(first, nn.Linear)
        of_p, of_q, of_difference = first.weight.detach().chunk(3, dim=1)
        self.of_p, self.of_q = nn.Parameter(of_p - of_difference), nn.Parameter(of_q + of_difference)
        self.bias, self.rest = first.bias, head.mlp[1:]

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        """As `PairHead.forward`."""
        return self.rest(nn.functional.linear(q, self.of_q, self.bias) + nn.functional.linear(p, self.of_p))


class Judgement(nn.Module):
    """Anchors [A, N, width] and states [N, width] -> what `Heads` say of them."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.hop, self.error = Pair(heads._hop), Pair(heads._error)
        self.completion, self.step = Pair(heads._completion), Pair(heads._step)
        self.distribution = heads.distribution

    def forward(self, anchors: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        """As `Heads.forward`."""
        first = anchors[1]
        return (
            torch.tanh(self.hop(anchors, state)[..., 0]),
            expected_error(self.error(first, state)),
            self.completion(first, state)[..., 0],
            self.step(first, state),
            ood_score(self.distribution, state),
        )


class Completion(nn.Module):
    """States of the first moment and of this one, [M, width] each -> logits [M] of "done"."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.completion = Pair(heads._completion)

    def forward(self, first: Tensor, now: Tensor) -> Tensor:
        """As `Heads.completion`."""
        return self.completion(first, now)[..., 0]


def onnx_graphs(net: ProgressNet) -> Mapping[str, bytes]:
    """The graphs of `GRAPHS`, serialised, for any number of pictures, moments and anchors.

    Raises `UserError` without the packages that write ONNX, for a net that is exported already, and for a tower that
    has no form in ONNX.
    """
    if not list(net.parameters()):
        raise UserError("this model is exported already: export the checkpoint that it was made from")
    if net.config.encoder.transformers is not None:
        raise UserError("a model on towers of `transformers` has no form in ONNX here: judge by the checkpoint itself")
    size, views, width = net.config.encoder.image_size, len(net.config.views), net.config.width
    pictures = torch.zeros(2 * views, *size, 3, dtype=torch.uint8)
    view, owner = torch.arange(views).repeat(2), torch.arange(2).repeat_interleave(views)
    state, anchors = torch.zeros(2, width), torch.zeros(2, 2, width)
    hidden = torch.eye(views + 1, dtype=torch.bool)[:, 1:]
    looked = {"pictures": pictures, "view": view, "owner": owner, "instruction": state, "hidden": hidden}
    parts: dict[str, tuple[nn.Module, dict[str, Tensor]]] = {
        "read": (Read(net), {"ids": net.encoder.tokenize(["one", "two"])}),
        "state": (State(net), looked),
        "heads": (Judgement(net.heads), {"anchors": anchors, "state": state}),
        "completion": (Completion(net.heads), {"first": state, "now": state + 1}),
    }
    return {name: written(*parts[name], outputs) for name, outputs in GRAPHS.items()}


def written(module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> bytes:
    """One module as a serialised graph whose leading dimensions are free."""
    try:
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ModuleNotFoundError as fault:
        raise UserError("writing ONNX needs onnx and onnxscript: pip install 'embodied-rm[onnx]'") from fault
    free = torch.export.Dim.DYNAMIC
    shapes = {name: {0: free, 1: free} if name == "anchors" else {0: free} for name in inputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter, about itself
        try:
            program = torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                dynamo=True,
                dynamic_shapes=tuple(shapes.values()),
                input_names=list(inputs),
                output_names=list(outputs),
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as fault:
            reason = str(fault).strip().splitlines()[0]
            raise UserError(f"the part {type(module).__name__.lower()} cannot be written as ONNX: {reason}") from fault
    assert program is not None
    return program.model_proto.SerializeToString()
