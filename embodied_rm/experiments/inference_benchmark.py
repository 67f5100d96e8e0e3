"""`embodied-rm bench model`: inference speed of a reward model, in eager torch and ONNX Runtime."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.cuda_net import CudaNet
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.numerical_parity import INSTRUCTIONS, max_differences, random_views
from embodied_rm.models.onnx_export import export_graphs
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.paths import CHECKPOINT_DIR, resolve_checkpoint
from embodied_rm.run_folder import Reporter, RunFolder

EAGER, ONNX = "eager torch", "ONNX Runtime"
CUDA, CUDA_GRAPHS = "eager torch, CUDA", "bf16 and CUDA graphs"
WARM_UP_CALLS = 3
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
        for name in ("num_envs", "image_size", "repeats"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.image_size % 8:
            raise UserError(f"image_size must be a multiple of 8, got {self.image_size}")


def main(config: BenchModelConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; write metrics and, if set, a section of the results page."""
    net = load_or_make_net(config)
    size = net.config.encoder.image_size
    views, frames = ", ".join(net.config.views), config.num_envs * len(net.config.views)
    settings = {"environments": config.num_envs, "views": views, "image_size": f"{size[1]}x{size[0]}"}
    settings |= {"tower": net.config.encoder.open_clip["vision_cfg"].get("timm_model_name") or "pretrained"}
    reporter.table("bench model", {"machine": describe_machine(), **settings})
    nets = make_contenders(net)
    seconds: dict[str, list[float]] = {name: [] for name in nets}
    timings = time_in_turn(nets, config.num_envs, config.repeats)
    for name, elapsed_s in reporter.track(timings, "inference", total=len(nets) * config.repeats):
        seconds[name].append(elapsed_s)
    metrics = throughput_metrics(seconds, frames) | {
        "largest_difference": max(max_differences(net, nets[ONNX]).values())
    }
    reporter.table("view-frames per second", metrics)
    reporter.table("targets", target_results(metrics))
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), **settings, **metrics}})
    if config.results_page is not None:
        write_section(config.results_page, "bench model", markdown_section(config, settings, metrics))


def load_or_make_net(config: BenchModelConfig) -> ProgressNet:
    """Load the checkpoint, or make a default model with random weights."""
    if config.checkpoint is not None:
        return load_progress_net(resolve_checkpoint(config.checkpoint, CHECKPOINT_DIR))
    torch.manual_seed(0)
    tower = NetConfig(views=config.views).encoder.open_clip["vision_cfg"]["timm_model_name"]
    encoder = small_encoder_config(tower, (config.image_size, config.image_size))
    return ProgressNet(NetConfig(views=config.views, encoder=encoder)).eval()


def make_contenders(net: ProgressNet) -> dict[str, ProgressNet]:
    """Return the same weights in every runtime of this machine."""
    nets: dict[str, ProgressNet] = {EAGER: net, ONNX: OnnxNet(net.config, export_graphs(net))}
    if torch.cuda.is_available():
        cuda_net = copy.deepcopy(net).to("cuda")
        nets |= {CUDA: cuda_net, CUDA_GRAPHS: CudaNet(cuda_net)}
    return nets


def time_in_turn(nets: Mapping[str, ProgressNet], num_envs: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield (name, seconds of one call), interleaved so that other load affects all runtimes alike."""
    calls = {name: make_call(net, num_envs) for name, net in nets.items()}
    for call_net in list(calls.values()) * WARM_UP_CALLS:
        call_net()
    for _ in range(rounds):
        for name, call_net in calls.items():
            start_s = time.perf_counter()
            call_net()
            yield name, time.perf_counter() - start_s


def make_call(net: ProgressNet, num_envs: int) -> Callable[[], object]:
    """Return a function that makes one prediction for `num_envs` environments; results are on the host at its end."""
    views = random_views(net, np.random.default_rng(0), num_envs)
    state = net.reset(views, [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(num_envs)])
    return lambda: net.step(state, views)


def throughput_metrics(seconds: Mapping[str, list[float]], frames: int) -> dict[str, float]:
    """Return view-frames per second by the median time, and the median ratios within a round."""
    metrics = {f"{name}_per_s": frames / median(elapsed_s) for name, elapsed_s in seconds.items()}
    for fast, slow in ((ONNX, EAGER), (CUDA_GRAPHS, CUDA)):
        if fast in seconds:
            ratios = [s / f for s, f in zip(seconds[slow], seconds[fast], strict=True)]
            metrics[f"{fast}_to_{slow}"] = median(ratios)
    return metrics


def target_results(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return each target and whether it is met."""
    return {
        name: f"{target:,.0f}, {'met' if metrics[name] >= target else 'missed'}" for name, target in TARGETS.items()
    }


def markdown_section(config: BenchModelConfig, settings: Mapping[str, object], metrics: Mapping[str, float]) -> str:
    """Return the results as Markdown."""
    lines = [
        "## Inference speed of a reward model",
        "",
        f"`embodied-rm bench model`: one step for {settings['environments']} environments, views {settings['views']} "
        f"at {settings['image_size']}, including encoding; tower `{settings['tower']}`, "
        f"{torch.get_num_threads()} threads. Medians of {config.repeats} interleaved runs.",
        "",
        "| runtime | view-frames per second | speedup |",
        "|---|---|---|",
    ]
    for name, baseline in ((EAGER, None), (ONNX, EAGER), (CUDA, None), (CUDA_GRAPHS, CUDA)):
        speed = f"{metrics[f'{name}_per_s']:,.0f}" if f"{name}_per_s" in metrics else "not measured"
        ratio = f"{metrics[f'{name}_to_{baseline}']:.2f}" if f"{name}_to_{baseline}" in metrics else ""
        lines.append(f"| {name} | {speed} | {ratio} |")
    targets = "; ".join(f"{name.replace('_', ' ')}: {result}" for name, result in target_results(metrics).items())
    lines += ["", f"Targets at the default settings on two cores: {targets}."]
    return "\n".join(
        [*lines, "", f"Largest difference of {ONNX} from eager torch: {metrics['largest_difference']:.1g}."]
    )


COMMAND = Command(schema=BenchModelConfig, main=main)
