"""`embodied-rm bench model`: how fast a reward model judges, in eager torch and through ONNX Runtime."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL, checkpoint_in
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.cuda_net import CudaNet
from embodied_rm.models.encoders import small_encoder
from embodied_rm.models.likeness import SENTENCES, differences, random_views
from embodied_rm.models.onnx_graphs import onnx_graphs
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.run import Reporter, RunFolder

EAGER, ONNX = "eager torch", "ONNX Runtime"
CUDA, GRAPHS = "eager torch, CUDA", "bf16 and CUDA graphs"
WARM_UP = 3
ASKED = {f"{ONNX}_per_s": 10_000.0, f"{ONNX}_to_{EAGER}": 3.0}
"""What this project asks of its default model at the default settings on two cores."""


@dataclass(frozen=True, kw_only=True)
class BenchModelConfig:
    """What is measured and how long."""

    checkpoint: Path | None = None
    views: tuple[str, ...] = ("front", "wrist")
    num_envs: int = 128
    image_size: int = 64
    rounds: int = 30
    page: Path | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "image_size", "rounds"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.image_size % 8:
            raise UserError(f"image_size must be a multiple of 8, got {self.image_size}")


def start(config: BenchModelConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; leave numbers and perhaps a section of a page."""
    net = reward_model(config)
    size = net.config.encoder.image_size
    views, frames = ", ".join(net.config.views), config.num_envs * len(net.config.views)
    about = {"environments": config.num_envs, "views": views, "image_size": f"{size[1]}x{size[0]}"}
    about |= {"tower": net.config.encoder.open_clip["vision_cfg"].get("timm_model_name") or "pretrained"}
    reporter.table("bench model", {"machine": machine(), **about})
    nets = contenders(net)
    seconds: dict[str, list[float]] = {name: [] for name in nets}
    timed = turns(nets, config.num_envs, config.rounds)
    for name, taken in reporter.track(timed, "advance", total=len(nets) * config.rounds):
        seconds[name].append(taken)
    told = summary(seconds, frames) | {"largest_difference": max(differences(net, nets[ONNX]).values())}
    reporter.table("view-frames a second", told)
    reporter.table("asked", asked(told))
    run.write_json("metrics.json", {"bench": {"machine": machine(), **about, **told}})
    if config.page is not None:
        put_section(config.page, "bench model", section(config, about, told))


def reward_model(config: BenchModelConfig) -> ProgressNet:
    """The model of the checkpoint, or one of the usual kind with random weights."""
    if config.checkpoint is not None:
        return load_progress_net(checkpoint_in(config.checkpoint, REWARD_MODEL))
    torch.manual_seed(0)
    tower = NetConfig(views=config.views).encoder.open_clip["vision_cfg"]["timm_model_name"]
    encoder = small_encoder(tower, (config.image_size, config.image_size))
    return ProgressNet(NetConfig(views=config.views, encoder=encoder)).eval()


def contenders(net: ProgressNet) -> dict[str, ProgressNet]:
    """The same weights, in every way that this machine can run them."""
    nets: dict[str, ProgressNet] = {EAGER: net, ONNX: OnnxNet(net.config, onnx_graphs(net))}
    if torch.cuda.is_available():
        there = copy.deepcopy(net).to("cuda")
        nets |= {CUDA: there, GRAPHS: CudaNet(there)}
    return nets


def turns(nets: Mapping[str, ProgressNet], num_envs: int, rounds: int) -> Iterator[tuple[str, float]]:
    """(name, seconds of one `advance`), in turn, so that a busy machine is busy for all."""
    calls = {name: call(net, num_envs) for name, net in nets.items()}
    for judge in list(calls.values()) * WARM_UP:
        judge()
    for _ in range(rounds):
        for name, judge in calls.items():
            began = time.perf_counter()
            judge()
            yield name, time.perf_counter() - began


def call(net: ProgressNet, num_envs: int) -> Callable[[], object]:
    """One judgement of `num_envs` environments in all views; it ends when the numbers are on the host."""
    views = random_views(net, np.random.default_rng(0), num_envs)
    memory = net.begin(views, [SENTENCES[i % len(SENTENCES)] for i in range(num_envs)])
    return lambda: net.advance(memory, views)


def summary(seconds: Mapping[str, list[float]], frames: int) -> dict[str, float]:
    """View-frames a second by the median, and the medians of the ratios within a round."""
    told = {f"{name}_per_s": frames / median(taken) for name, taken in seconds.items()}
    for fast, slow in ((ONNX, EAGER), (GRAPHS, CUDA)):
        if fast in seconds:
            ratios = [s / f for s, f in zip(seconds[slow], seconds[fast], strict=True)]
            told[f"{fast}_to_{slow}"] = median(ratios)
    return told


def asked(told: Mapping[str, float]) -> dict[str, str]:
    """What is asked of each number, and whether that is met."""
    return {name: f"{wanted:,.0f}, {'met' if told[name] >= wanted else 'missed'}" for name, wanted in ASKED.items()}


def section(config: BenchModelConfig, about: Mapping[str, object], told: Mapping[str, float]) -> str:
    """The results as Markdown."""
    lines = [
        "## How fast a reward model judges",
        "",
        f"`embodied-rm bench model`: `advance` for {about['environments']} environments, views {about['views']} at "
        f"{about['image_size']}, encoding included; tower `{about['tower']}`, {torch.get_num_threads()} threads. "
        f"Medians of {config.rounds}, in turn.",
        "",
        "| how | view-frames a second | times |",
        "|---|---|---|",
    ]
    for name, base in ((EAGER, None), (ONNX, EAGER), (CUDA, None), (GRAPHS, CUDA)):
        speed = f"{told[f'{name}_per_s']:,.0f}" if f"{name}_per_s" in told else "not measured"
        ratio = f"{told[f'{name}_to_{base}']:.2f}" if f"{name}_to_{base}" in told else ""
        lines.append(f"| {name} | {speed} | {ratio} |")
    met = "; ".join(f"{name.replace('_', ' ')}: {answer}" for name, answer in asked(told).items())
    lines += ["", f"Asked at the default settings on two cores: {met}."]
    return "\n".join([*lines, "", f"Largest difference of {ONNX} from eager torch: {told['largest_difference']:.1g}."])


COMMAND = Command(schema=BenchModelConfig, start=start)
