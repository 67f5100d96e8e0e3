"""The parts of the zero-shot model: recurrence, grids, the filter of progress and direction, the match of sentences."""

from __future__ import annotations

import pytest
import torch

from embodied_rm.models.zero_shot.progress_filter import (
    DIRECTION_GAIN,
    Readout,
    advance_filter,
    start_filter,
    success_features,
)
from embodied_rm.models.zero_shot.progress_gru import FrameCells, ProgressGru, ProgressGruConfig, grid_cells
from embodied_rm.models.zero_shot.sentence_encoder import MAX_TOKENS, open_sentence_encoder
from embodied_rm.models.zero_shot.sentence_match import SentenceMatch, SentenceMatchConfig

CHANNELS, TEXT_WIDTH = 12, 6


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_stepping_frame_by_frame_equals_the_whole_clip():
    net = ProgressGru(ProgressGruConfig(channels=CHANNELS, text_width=TEXT_WIDTH)).eval()
    cells, sentence = torch.randn(3, 5, 16, CHANNELS), torch.randn(3, TEXT_WIDTH)
    net.set_statistics(3 * cells + 1)
    hidden, logits = torch.zeros(3, net.config.width), []
    for t in range(5):
        frames = FrameCells(cells[:, t], cells[:, max(t - 1, 0)], cells[:, 0])
        step, hidden, _ = net.step(frames, sentence, hidden)
        logits.append(step)
    torch.testing.assert_close(torch.stack(logits, dim=1), net(cells, sentence))


def test_a_grid_averages_blocks_of_cells_and_joins_the_levels():
    fine = torch.arange(16.0).view(1, 16, 1)
    coarse = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])
    grid = grid_cells([fine, coarse], 2)
    assert grid[0].tolist() == [[2.5, 1.0], [4.5, 2.0], [10.5, 3.0], [12.5, 4.0]]


def test_the_filter_rises_with_forward_changes_and_falls_with_backward_ones():
    progress = torch.zeros(3)
    direction = torch.tensor([1.0, 0.0, -1.0])
    state = start_filter(progress)
    for _ in range(4):
        state = advance_filter(state, progress, direction)
    assert state.logit[0] > 0 and state.logit[1] == 0 and state.logit[2] == -state.logit[0]
    assert state.climb.tolist() == [4, 0, 0]
    back = advance_filter(state, progress, -direction)
    assert back.climb.tolist() == [3, 0, 1]
    first = advance_filter(start_filter(progress), progress, direction)
    assert first.logit[0] == pytest.approx(DIRECTION_GAIN)


def test_the_filter_ends_at_the_predicted_progress_of_a_video_without_direction():
    target = torch.tensor([2.0])
    state = start_filter(torch.tensor([-3.0]))
    for _ in range(500):
        state = advance_filter(state, target, torch.zeros(1))
    torch.testing.assert_close(state.logit, target, atol=1e-3, rtol=0)


def test_a_readout_is_linear_in_its_features():
    state = start_filter(torch.tensor([1.0, 2.0]))
    logits = Readout(-1.0, (2.0, 5.0)).logit(*success_features(state))
    assert logits.tolist() == [1.0, 3.0]  # nothing climbed yet


def make_match(num_bank_images: int = 20) -> SentenceMatch:
    config = SentenceMatchConfig(channels=CHANNELS, text_width=TEXT_WIDTH, num_bank_images=num_bank_images, width=8)
    match = SentenceMatch(config).eval()
    match.bank.copy_(match.embed_cells(torch.randn(num_bank_images, 49, CHANNELS)).half())
    return match


def test_padding_changes_no_match():
    match, cells = make_match(), torch.randn(2, 49, CHANNELS)
    tokens, mask = torch.randn(1, 4, TEXT_WIDTH), torch.tensor([[True, True, True, False]])
    scores = match(tokens, mask, match.embed_cells(cells))
    padded = tokens.clone()
    padded[:, 3] = 100
    torch.testing.assert_close(match(padded, mask, match.embed_cells(cells)), scores)
    torch.testing.assert_close(match(tokens[:, :3], mask[:, :3], match.embed_cells(cells)), scores)


def test_standardized_matches_of_the_banks_own_images_have_mean_0_and_deviation_1():
    match = make_match()
    cells = torch.randn(20, 49, CHANNELS)
    with torch.no_grad():
        match.bank.copy_(match.embed_cells(cells).half())
        tokens, mask = torch.randn(1, 4, TEXT_WIDTH), torch.ones(1, 4, dtype=torch.bool)
        scores = match.standardize(tokens.expand(20, -1, -1), mask.expand(20, -1), cells)
    assert scores.mean().abs() < 1e-2 and scores.std() == pytest.approx(1, abs=1e-2)


def test_sentences_are_encoded_by_their_tokens():
    text = open_sentence_encoder()
    sentences = text.encode(["open the drawer", "open the drawer", "put " * 100, ""])
    assert sentences.vectors.shape == (4, MAX_TOKENS, text.width)
    assert sentences.mask.sum(dim=1).tolist() == [5, 5, MAX_TOKENS, 2]  # with the two marks of BERT
    torch.testing.assert_close(sentences.vectors[0], sentences.vectors[1])
    near, far = text.encode(["pull the drawer open", "a bird flies"]).mean(), sentences.mean()[:1]
    similarity = torch.nn.functional.cosine_similarity(near, far)
    assert similarity[0] > similarity[1] + 0.2
