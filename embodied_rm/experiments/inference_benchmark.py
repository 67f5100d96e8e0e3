"""`embodied-rm bench model`: inference speed of a reward model, in eager torch and ONNX Runtime."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from embodied_rm.command import Command
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments.load import load_or_make_net
from embodied_rm.experiments.results_page import describe_machine, write_results
from embodied_rm.experiments.timing import median_ratio, throughputs, time_in_turn
from embodied_rm.models.cuda_net import CudaNet
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.numerical_parity import INSTRUCTIONS, max_differences, random_views
from embodied_rm.models.onnx_export import export_graphs
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.report.markdown import markdown_table
from embodied_rm.run_folder import Reporter, RunFolder

EAGER, ONNX = "eager torch", "ONNX Runtime"
CUDA, CUDA_GRAPHS = "eager torch, CUDA", "bf16 and CUDA graphs"
WARM_UP_ROUNDS = 3
TARGETS = {f"{ONNX}_per_s": 10_000.0, f"{ONNX}_to_{EAGER}": 3.0}
"""Targets for the default model at the default settings on two cores."""


@dataclass(frozen=True, kw_only=True)
class BenchModelConfig:
    """Config of `bench model`."""

    checkpoint: Path | None = None
    views: tuple[str, ...] = ("front", "wrist")
    num_envs: int = 128
    image_size: int = 64
    repeats: int = 30
    results_page: Path | None = None

    def __post_init__(self) -> None:
        check_minimum(self, 1, "num_envs", "image_size", "repeats")
        if self.image_size % 8:
            raise UserError(f"image_size must be a multiple of 8, got {self.image_size}")


def main(config: BenchModelConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write metrics and, if set, a section of the results page."""
    net = load_or_make_net(config.checkpoint, default_net_config(config))
    size = net.config.encoder.image_size
    views, frames = ", ".join(net.config.views), config.num_envs * len(net.config.views)
    settings = {"environments": config.num_envs, "views": views, "image_size": f"{size[1]}x{size[0]}"}
    settings |= {"tower": net.config.encoder.open_clip["vision_cfg"].get("timm_model_name") or "pretrained"}
    reporter.table("bench model", {"machine": describe_machine(), **settings})
    nets = make_contenders(net)
    calls = {name: make_call(contender, config.num_envs) for name, contender in nets.items()}
    seconds = time_in_turn(calls, config.repeats, WARM_UP_ROUNDS, reporter, "inference")
    metrics = throughputs(seconds, frames)
    for fast, slow in ((ONNX, EAGER), (CUDA_GRAPHS, CUDA)):
        if fast in seconds:
            metrics[f"{fast}_to_{slow}"] = median_ratio(seconds, slow, fast)
    metrics["largest_difference"] = max(max_differences(net, nets[ONNX]).values())
    reporter.table("view-frames per second", metrics)
    reporter.table("targets", target_results(metrics))
    text = markdown_section(config, settings, metrics)
    write_results(run, config.results_page, "bench model", {**settings, **metrics}, text)


def default_net_config(config: BenchModelConfig) -> NetConfig:
    """Return the config of a default model of these views and this image size."""
    tower = NetConfig(views=config.views).encoder.open_clip["vision_cfg"]["timm_model_name"]
    encoder = small_encoder_config(tower, (config.image_size, config.image_size))
    return NetConfig(views=config.views, encoder=encoder)


def make_contenders(net: ProgressNet) -> dict[str, ProgressNet]:
    """Return the same weights in every runtime of this machine."""
    nets: dict[str, ProgressNet] = {EAGER: net, ONNX: OnnxNet(net.config, export_graphs(net))}
    if torch.cuda.is_available():
        cuda_net = copy.deepcopy(net).to("cuda")
        nets |= {CUDA: cuda_net, CUDA_GRAPHS: CudaNet(cuda_net)}
    return nets


def make_call(net: ProgressNet, num_envs: int) -> Callable[[], object]:
    """Return a function that makes one prediction for `num_envs` environments; results are on the host at its end."""
    views = random_views(net, np.random.default_rng(0), num_envs)
    state = net.reset(views, [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(num_envs)])
    return lambda: net.step(state, views)


def target_results(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return each target and whether it is met."""
    return {
        name: f"{target:,.0f}, {'met' if metrics[name] >= target else 'missed'}" for name, target in TARGETS.items()
    }


def markdown_section(config: BenchModelConfig, settings: Mapping[str, object], metrics: Mapping[str, float]) -> str:
    """Return the results as Markdown."""
    rows = []
    for name, baseline in ((EAGER, None), (ONNX, EAGER), (CUDA, None), (CUDA_GRAPHS, CUDA)):
        speed = f"{metrics[f'{name}_per_s']:,.0f}" if f"{name}_per_s" in metrics else "not measured"
        ratio = f"{metrics[f'{name}_to_{baseline}']:.2f}" if f"{name}_to_{baseline}" in metrics else ""
        rows.append((name, speed, ratio))
    targets = "; ".join(f"{name.replace('_', ' ')}: {result}" for name, result in target_results(metrics).items())
    lines = [
        "## Inference speed of a reward model",
        "",
        f"`embodied-rm bench model`: one step for {settings['environments']} environments, views {settings['views']} "
        f"at {settings['image_size']}, including encoding; tower `{settings['tower']}`, "
        f"{torch.get_num_threads()} threads. Medians of {config.repeats} interleaved runs.",
        "",
        *markdown_table(("runtime", "view-frames per second", "speedup"), rows),
        "",
        f"Targets at the default settings on two cores: {targets}.",
        "",
        f"Largest difference of {ONNX} from eager torch: {metrics['largest_difference']:.1g}.",
    ]
    return "\n".join(lines)


COMMAND = Command(schema=BenchModelConfig, main=main)
