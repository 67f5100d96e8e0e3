"""Fit the nets of the zero-shot model to features of episodes: a fixed number of updates, from a seed.

Losses on held-out episodes are measured meanwhile, and change nothing: the learning rate ends at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import check_minimum
from embodied_rm.models.zero_shot.progress_gru import ProgressGru
from embodied_rm.models.zero_shot.sentence_encoder import SentenceEncoder
from embodied_rm.models.zero_shot.sentence_match import SentenceMatch
from embodied_rm.training.zero_shot.clips import ClipBatch, draw_batch
from embodied_rm.training.zero_shot.episode_features import EpisodeFeatures

DIRECTION_WEIGHT = 0.5  # weight of the direction's loss beside that of the progress
MAX_GRAD_NORM = 1.0
CELL_NOISE = 0.1  # standard deviation of the noise on the cells that are matched, in their standard deviations
WARMUP_FRACTION = 0.1  # of the updates, in which the learning rate rises
STATISTICS_EPISODES = 150  # episodes whose cells the standardization is computed from
NUM_EVALUATIONS = 20  # of the held-out loss, evenly spaced
HELD_OUT_CLIPS = 96  # clips of held-out episodes, always the same ones


class FitStep(NamedTuple):
    """Losses of one update."""

    loss: float
    held_out_loss: float | None  # after the update, on held-out episodes; None: not measured


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How long and how fast a net is fitted."""

    steps: int
    batch_size: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.05

    def __post_init__(self) -> None:
        check_minimum(self, 1, "steps", "batch_size")


def fit_progress_gru(
    net: ProgressGru,
    episodes: list[EpisodeFeatures],
    held_out: list[EpisodeFeatures],
    text: SentenceEncoder,
    config: FitConfig,
    move_threshold: float,
    seed: int,
) -> Iterator[FitStep]:
    """Fit progress and direction; yield the losses of each update."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    net.set_statistics(
        torch.cat([e.cells[0].float() for e in episodes[:: max(1, len(episodes) // STATISTICS_EPISODES)]])
    )
    sentences = {text_: text.encode([text_]).mean()[0] for e in [*episodes, *held_out] for text_ in e.sentences}

    def batch_loss(batch: ClipBatch, instructions: list[str]) -> Tensor:
        return progress_loss(net(batch.cells.float(), torch.stack([sentences[text_] for text_ in instructions])), batch)

    held_out_batch = draw_batch(held_out, HELD_OUT_CLIPS, move_threshold, np.random.default_rng(seed))
    optimizer, schedule = make_optimizer(net, config)
    for step in range(config.steps):
        net.train()
        loss = batch_loss(*draw_batch(episodes, config.batch_size, move_threshold, rng))
        update(net, optimizer, loss)
        schedule.step()
        net.eval()
        with torch.no_grad():
            measured = batch_loss(*held_out_batch).item() if is_evaluated(step, config.steps) else None
        yield FitStep(loss.item(), measured)


def is_evaluated(step: int, num_steps: int) -> bool:
    """Return whether the held-out loss is measured after an update."""
    return step == num_steps - 1 or step % max(1, num_steps // NUM_EVALUATIONS) == 0


def progress_loss(logits: Tensor, batch: ClipBatch) -> Tensor:
    """Cross entropies of progress and of direction, from logits [B, T, 2]."""
    entropy = nn.functional.binary_cross_entropy_with_logits
    progress = entropy(logits[..., 0], batch.progress, reduction="none")
    change = batch.progress[:, 1:] - batch.progress[:, :-1]
    changed = batch.known[:, 1:] & (change != 0)
    direction = entropy(logits[:, 1:, 1], (change > 0).float(), reduction="none")
    return masked_mean(progress, batch.known) + DIRECTION_WEIGHT * masked_mean(direction, changed)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values under a mask; 0 if it is empty."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def fit_sentence_match(
    net: SentenceMatch,
    episodes: list[EpisodeFeatures],
    held_out: list[EpisodeFeatures],
    text: SentenceEncoder,
    config: FitConfig,
    seed: int,
) -> Iterator[FitStep]:
    """Fit the match by contrast with the sentences and images of the same lab; yield the losses of each update."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    tokens = {sentence: text.encode([sentence]) for e in [*episodes, *held_out] for sentence in e.sentences}
    real_tokens = torch.cat([tokens[e.sentences[0]].vectors[tokens[e.sentences[0]].mask] for e in episodes])
    net.set_statistics(torch.stack([e.match_cells[0].float() for e in episodes]), real_tokens)

    def pair_loss(cells: Tensor, sentences: list[str]) -> Tensor:
        vectors, mask = (torch.cat(parts) for parts in zip(*(tokens[s] for s in sentences), strict=True))
        return contrastive_loss(net(vectors, mask, net.embed_cells(cells)), sentences)

    groups = group_episodes(episodes)
    held_out_parts = [group[: config.batch_size] for group in group_episodes(held_out).values()]
    names, shares = list(groups), np.array([len(group) for group in groups.values()]) / len(episodes)
    optimizer, schedule = make_optimizer(net, config)
    for step in range(config.steps):
        net.train()
        group = groups[names[int(rng.choice(len(names), p=shares))]]
        chosen = [group[i] for i in rng.choice(len(group), min(config.batch_size, len(group)), replace=False)]
        copies = [int(rng.integers(len(e.match_cells))) for e in chosen]
        sentences = [e.sentence(copy) for e, copy in zip(chosen, copies, strict=True)]
        cells = torch.stack([e.match_cells[copy].float() for e, copy in zip(chosen, copies, strict=True)])
        loss = pair_loss(cells + CELL_NOISE * net.cell_std * torch.randn_like(cells), sentences)
        update(net, optimizer, loss)
        schedule.step()
        net.eval()
        measured = mean_pair_loss(pair_loss, held_out_parts) if is_evaluated(step, config.steps) else None
        yield FitStep(loss.item(), measured)
    fill_bank(net, episodes, rng)


def group_episodes(episodes: Sequence[EpisodeFeatures]) -> dict[str, list[EpisodeFeatures]]:
    """Return group -> its episodes."""
    return {group: [e for e in episodes if e.group == group] for group in sorted({e.group for e in episodes})}


@torch.no_grad()
def mean_pair_loss(
    pair_loss: Callable[[Tensor, list[str]], Tensor], parts: Sequence[Sequence[EpisodeFeatures]]
) -> float:
    """Return the mean loss of the unchanged images and sentences of groups of episodes."""
    losses = []
    for part in parts:
        cells = torch.stack([episode.match_cells[0].float() for episode in part])
        losses.append(pair_loss(cells, [episode.sentence(0) for episode in part]))
    return torch.stack(losses).mean().item()


def contrastive_loss(scores: Tensor, sentences: list[str]) -> Tensor:
    """InfoNCE in both directions of scores [B, B]; equal sentences are no negatives of each other."""
    same = torch.tensor([[a == b for b in sentences] for a in sentences]) & ~torch.eye(len(sentences), dtype=torch.bool)
    masked, target = scores.masked_fill(same, -torch.inf), torch.arange(len(sentences))
    return nn.functional.cross_entropy(masked, target) + nn.functional.cross_entropy(masked.T, target)


@torch.no_grad()
def fill_bank(net: SentenceMatch, episodes: list[EpisodeFeatures], rng: np.random.Generator) -> None:
    """Fill the bank with images of training episodes."""
    size = len(net.bank)
    chosen = rng.choice(len(episodes), size, replace=len(episodes) < size)
    cells = torch.stack([episodes[i].match_cells[0].float() for i in chosen])
    net.bank.copy_(net.embed_cells(cells).half())


def make_optimizer(
    net: nn.Module, config: FitConfig
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.OneCycleLR]:
    """AdamW, and a rate that rises and falls once."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.learning_rate, total_steps=config.steps + 1, pct_start=WARMUP_FRACTION
    )
    return optimizer, schedule


def update(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step down the gradient."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), MAX_GRAD_NORM)
    optimizer.step()
