"""Training objectives of all labeling schemes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from objectives import objective
from sprites import episodes

from embodied_rm.errors import UserError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import LABEL_SCHEMES, select_schemes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, losses, train
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.batches import LabeledBatch, LabeledBatchSampler
from embodied_rm.training.forward import TrainingOutputs
from embodied_rm.training.objective import LOSS_TERMS, LOSS_WEIGHTS, scheme_loss_terms

QUICK = TrainConfig(
    image_size=(32, 32), steps=4, batch_size=4, frames_per_episode=5, augment=AugmentConfig(view_dropout_prob=0.3)
)
DATA = episodes(9) + episodes(6, start=40, task="return")


def train_weights(folder, schemes: Sequence[str]) -> dict[str, torch.Tensor]:
    forward = not any(LABEL_SCHEMES[name].incremental for name in schemes)
    config = replace(QUICK, label_schemes=tuple(schemes), fusion="forward" if forward else "mean")
    return train(DATA, config, RunFolder.open(folder / "-".join(schemes)), NullReporter()).state_dict()


def sample_batch(schemes: Sequence[str], size: int = 12) -> LabeledBatch:
    return LabeledBatchSampler(label(DATA, schemes), ("front", "top")).sample(size, 6, np.random.default_rng(0))


def perfect_outputs(
    batch: LabeledBatch, progress: np.ndarray | None = None, *, negative_hop: float = 0.0, logit: float = 20.0
) -> TrainingOutputs:
    """Return outputs of heads with this progress [B, M] (default: that of the first scheme) and correct outcomes."""
    targets = next(iter(batch.targets.values()))
    curve = targets.progress if progress is None else progress
    hops = torch.from_numpy(hop(curve[:, :, None], curve[:, None]))
    return TrainingOutputs(
        hops=hops,
        goal_hops=torch.from_numpy(hop(1.0, curve)),
        expected_error=torch.full(curve.shape, 0.1),
        success_logit=torch.from_numpy(np.where(targets.success, logit, -logit)),
        subtask_logits=logit * torch.nn.functional.one_hot(torch.from_numpy(targets.subtask).clamp(min=0), 3).double(),
        negative_hop=torch.full(batch.negatives_known.shape, negative_hop),
        negative_success_logit=torch.full(batch.negatives_known.shape, -logit),
    )


def reference_objective(outputs: TrainingOutputs, batch: LabeledBatch) -> torch.Tensor:
    """Return the objective of `hops`, written out."""
    targets = batch.targets["hops"]
    off_diagonal = ~torch.eye(6, dtype=torch.bool)
    hops = torch.from_numpy(hop(targets.progress[:, :, None], targets.progress[:, None]))
    from_goal = torch.from_numpy(hop(1.0, targets.progress))
    has_goal, negatives_known = torch.from_numpy(batch.has_goal)[:, None], torch.from_numpy(batch.negatives_known)
    success, success_known = torch.from_numpy(targets.success), torch.from_numpy(targets.success_known)
    terms = {
        "all_pairs": losses.hop_loss(outputs.hops, hops, off_diagonal),
        "from_first_frame": losses.hop_loss(outputs.hops[:, 0, 1:], hops[:, 0, 1:]),
        "from_goal": losses.hop_loss(outputs.goal_hops, from_goal, has_goal),
        "error_nll": losses.error_nll_loss(
            outputs.expected_error[:, 1:], (outputs.hops[:, 0, 1:].detach().clamp(min=0) - hops[:, 0, 1:]).abs()
        ),
        "success": losses.bce_loss(outputs.success_logit, success, success_known),
        "subtask": losses.subtask_loss(outputs.subtask_logits, torch.from_numpy(targets.subtask)),
        "success_contrast": losses.success_contrast_loss(
            outputs.success_logit[:, 1], outputs.negative_success_logit, success_known[:, 1], negatives_known
        ),
    }
    weights = {"all_pairs": 1.0, "from_first_frame": 1.0, "from_goal": 0.5, "error_nll": 0.1}
    weights |= {"success": 0.3, "subtask": 0.1, "success_contrast": 1.0}
    return losses.weighted_sum(terms, weights)


def gradients(outputs: TrainingOutputs, loss) -> list[torch.Tensor]:
    leaves = [tensor.requires_grad_() for name, tensor in vars(outputs).items() if name != "negative_hop"]
    return list(torch.autograd.grad(loss(outputs), leaves))


def test_default_objective_equals_the_reference_and_draws_nothing():
    batch, rng = sample_batch(["hops"]), np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    random = {name: torch.rand(t.shape, generator=generator) for name, t in vars(perfect_outputs(batch)).items()}
    rng_state = rng.bit_generator.state
    actual, expected = (TrainingOutputs(**{name: tensor.clone() for name, tensor in random.items()}) for _ in range(2))
    assert objective(actual, batch, select_schemes(["hops"]), rng) == reference_objective(expected, batch)
    assert rng.bit_generator.state == rng_state
    pairs = zip(
        gradients(actual, lambda o: objective(o, batch, select_schemes(["hops"]), rng)),
        gradients(expected, lambda o: reference_objective(o, batch)),
        strict=True,
    )
    assert all(torch.equal(first, second) for first, second in pairs)


def test_batches_do_not_depend_on_further_schemes():
    single, several = sample_batch(["hops"]), sample_batch(["hops", "preferences", "time"])
    assert (single.frames == several.frames).all() and (single.frame_indices == several.frame_indices).all()
    assert single.negatives == several.negatives and list(several.targets) == ["hops", "preferences", "time"]


@pytest.mark.parametrize(
    "name", [name for name in LABEL_SCHEMES if LABEL_SCHEMES[name].supervision not in ("prediction", "comparison")]
)
def test_every_scheme_trains_deterministically(name, tmp_path):
    first, second = train_weights(tmp_path / "a", [name]), train_weights(tmp_path / "b", [name])
    assert all(torch.isfinite(tensor).all() for tensor in first.values())
    assert all(torch.equal(tensor, second[key]) for key, tensor in first.items())


def test_objectives_of_several_schemes_are_summed(tmp_path):
    batch = sample_batch(["hops", "pairwise", "time"])
    outputs, rng = perfect_outputs(batch), np.random.default_rng(0)
    parts = [objective(outputs, batch, select_schemes([name]), rng) for name in batch.targets]
    assert objective(outputs, batch, select_schemes(list(batch.targets)), rng) == pytest.approx(float(sum(parts)))
    assert train_weights(tmp_path, ["hops", "pairwise"])


@pytest.mark.parametrize(
    "name", [name for name in LABEL_SCHEMES if LABEL_SCHEMES[name].supervision not in ("prediction", "comparison")]
)
def test_correct_outputs_cost_less_than_reversed_ones(name):
    batch, schemes = sample_batch([name], size=15), select_schemes([name])
    targets = batch.targets[name]
    reversed_outputs = perfect_outputs(batch, np.ascontiguousarray(1 - targets.progress))
    correct = objective(perfect_outputs(batch), batch, schemes, np.random.default_rng(1))
    assert correct < objective(reversed_outputs, batch, schemes, np.random.default_rng(1))


@pytest.mark.parametrize("name", ["ordinal", "rewind", "pairwise"])
def test_progress_under_a_negative_instruction_is_penalized(name):
    batch, rng = sample_batch([name]), np.random.default_rng(0)
    assert batch.negatives_known.any()
    without, with_hop = (
        scheme_loss_terms(perfect_outputs(batch, negative_hop=h), batch, name, LABEL_SCHEMES[name], rng)
        for h in (0.0, 0.5)
    )
    assert without["negative_hop"] == 0 and with_hop["negative_hop"] == pytest.approx(0.45)
    assert all(with_hop[term] == without[term] for term in ("success", "success_contrast"))


@pytest.mark.parametrize("name", ["change_points", "rewind", "time", "ordinal"])
def test_outcome_schemes_have_no_success_gradient_before_the_end(name):
    batch = sample_batch([name])
    ends = np.array([[len(e) - 1 for e in DATA]])
    known = batch.targets[name].success_known
    assert known[:, 1].all() and np.isin(batch.frame_indices[known], ends).all()
    logits = perfect_outputs(batch).success_logit.requires_grad_()
    outputs = replace(perfect_outputs(batch), success_logit=logits)
    scheme_loss_terms(outputs, batch, name, LABEL_SCHEMES[name], np.random.default_rng(0))["success"].backward()
    assert logits.grad is not None and (logits.grad[torch.from_numpy(~known)] == 0).all()


def test_unknown_progress_of_failures_has_no_gradient():
    batch = sample_batch(["rewind"])
    unknown = torch.from_numpy(~batch.targets["rewind"].progress_known.all(axis=1))
    hops = torch.zeros(12, 6, 6, requires_grad=True)
    terms = scheme_loss_terms(
        replace(perfect_outputs(batch), hops=hops), batch, "rewind", LABEL_SCHEMES["rewind"], np.random.default_rng(0)
    )
    (terms["from_first_frame"] + terms["rewind_pairs"]).backward()
    assert unknown.any() and hops.grad is not None
    assert (hops.grad[unknown] == 0).all() and (hops.grad[~unknown] != 0).any()


def test_preference_loss_is_minimal_at_the_target_curve():
    batch = sample_batch(["preferences"])
    scheme, truth = LABEL_SCHEMES["preferences"], batch.targets["preferences"].progress

    def cost(progress: np.ndarray) -> float:
        terms = scheme_loss_terms(
            perfect_outputs(batch, progress.astype(np.float32)), batch, "preferences", scheme, np.random.default_rng(3)
        )
        return float(terms["partial_return"] + terms["regret"])

    assert cost(truth) < min(cost(0.6 * truth), cost(truth**3), cost(np.sqrt(truth)), cost(0 * truth))


def test_every_loss_term_has_a_weight_and_a_scheme():
    used_terms = {term for scheme in LABEL_SCHEMES.values() for term in scheme.loss_terms}
    assert set(LOSS_TERMS) == set(LOSS_WEIGHTS) == used_terms


@pytest.mark.parametrize(
    ("schemes", "message"),
    [
        (
            ("hop",),
            r"unknown labeling scheme 'hop'. Did you mean 'hops'\? Available: change_points, compared, distilled",
        ),
        ((), r"label_schemes must name at least one labeling scheme, each once, got \[\]"),
        (("hops", "hops"), r"each once, got \[hops, hops\]"),
    ],
)
def test_invalid_label_schemes_are_rejected(schemes, message):
    with pytest.raises(UserError, match=message):
        TrainConfig(label_schemes=schemes)


def test_labels_without_incremental_hops_need_forward_fusion(tmp_path):
    config = replace(QUICK, label_schemes=("ordinal", "preferences"))
    with pytest.raises(UserError, match=r"\[ordinal, preferences\] teach no hops .* fusion=mean .*fusion=forward"):
        train(DATA, config, RunFolder.open(tmp_path / "run"), NullReporter())
    net = train(DATA, replace(config, fusion="forward"), RunFolder.open(tmp_path / "forward"), NullReporter())
    assert net.config.fusion == "forward"
