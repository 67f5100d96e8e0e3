"""Every labeling scheme trains the same net: the default is what it always was, and each learns what it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.errors import UserError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import LABEL_SCHEMES, select_schemes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import TrainConfig, losses, train
from embodied_rm.train.augment import AugmentConfig
from embodied_rm.train.batches import LabeledBatch, LabeledBatchSampler
from embodied_rm.train.forward import TrainingOutputs
from embodied_rm.train.objective import LOSS_TERMS, LOSS_WEIGHTS, objective, scheme_loss_terms

QUICK = TrainConfig(
    image_size=(32, 32), steps=4, batch_size=4, frames_per_episode=5, augment=AugmentConfig(view_dropout_prob=0.3)
)
DATA = episodes(9) + episodes(6, start=40, task="return")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(folder, labels: Sequence[str]):
    forward = not any(LABEL_SCHEMES[name].incremental for name in labels)
    config = replace(QUICK, label_schemes=tuple(labels), fusion="forward" if forward else "mean")
    return train(DATA, config, RunFolder.open(folder / "-".join(labels)), NullReporter()).state_dict()


def batch_of(labels: Sequence[str], size: int = 12) -> LabeledBatch:
    return LabeledBatchSampler(label(DATA, labels), ("front", "top")).sample(size, 6, np.random.default_rng(0))


def said(
    batch: LabeledBatch, progress: np.ndarray | None = None, *, foreign: float = 0.0, sure: float = 20.0
) -> TrainingOutputs:
    """What heads say that know this progress [B, M] (default: that of the first scheme) and every outcome."""
    targets = next(iter(batch.targets.values()))
    curve = targets.progress if progress is None else progress
    hops = torch.from_numpy(hop(curve[:, :, None], curve[:, None]))
    return TrainingOutputs(
        hops=hops,
        goal_hops=torch.from_numpy(hop(1.0, curve)),
        expected_error=torch.full(curve.shape, 0.1),
        success_logit=torch.from_numpy(np.where(targets.success, sure, -sure)),
        subtask_logits=sure * torch.nn.functional.one_hot(torch.from_numpy(targets.subtask).clamp(min=0), 3).double(),
        negative_hop=torch.full(batch.negatives_known.shape, foreign),
        negative_success_logit=torch.full(batch.negatives_known.shape, -sure),
    )


def by_hand(outputs: TrainingOutputs, batch: LabeledBatch) -> torch.Tensor:
    """The objective of `hops`, written out."""
    targets = batch.targets["hops"]
    between = ~torch.eye(6, dtype=torch.bool)
    hops = torch.from_numpy(hop(targets.progress[:, :, None], targets.progress[:, None]))
    from_goal = torch.from_numpy(hop(1.0, targets.progress))
    has_goal, foreign = torch.from_numpy(batch.has_goal)[:, None], torch.from_numpy(batch.negatives_known)
    done, done_known = torch.from_numpy(targets.success), torch.from_numpy(targets.success_known)
    written = {
        "everywhere": losses.hop_loss(outputs.hops, hops, between),
        "forward": losses.hop_loss(outputs.hops[:, 0, 1:], hops[:, 0, 1:]),
        "goal": losses.hop_loss(outputs.goal_hops, from_goal, has_goal),
        "doubt": losses.error_nll_loss(
            outputs.expected_error[:, 1:], (outputs.hops[:, 0, 1:].detach().clamp(min=0) - hops[:, 0, 1:]).abs()
        ),
        "completion": losses.success_loss(outputs.success_logit, done, done_known),
        "step": losses.subtask_loss(outputs.subtask_logits, torch.from_numpy(targets.subtask)),
        "contrast": losses.success_contrast_loss(outputs.success_logit[:, 1], outputs.negative_success_logit, foreign),
    }
    weights = {"everywhere": 1.0, "forward": 1.0, "goal": 0.5, "doubt": 0.1}
    weights |= {"completion": 0.3, "step": 0.1, "contrast": 0.5}
    return losses.weighted_sum(written, weights)


def gradients(outputs: TrainingOutputs, loss) -> list[torch.Tensor]:
    leaves = [tensor.requires_grad_() for name, tensor in vars(outputs).items() if name != "foreign_hop"]
    return list(torch.autograd.grad(loss(outputs), leaves))


def test_the_default_is_bit_for_bit_the_objective_composed_by_hand_and_draws_nothing():
    batch, rng = batch_of(["hops"]), np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    random = {name: torch.rand(t.shape, generator=generator) for name, t in vars(said(batch)).items()}
    before = rng.bit_generator.state
    ours, hand = (TrainingOutputs(**{name: tensor.clone() for name, tensor in random.items()}) for _ in range(2))
    assert objective(ours, batch, select_schemes(["hops"]), rng) == by_hand(hand, batch)
    assert rng.bit_generator.state == before
    pairs = zip(
        gradients(ours, lambda o: objective(o, batch, select_schemes(["hops"]), rng)),
        gradients(hand, lambda o: by_hand(o, batch)),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in pairs)


def test_timesteps_and_images_of_the_default_do_not_depend_on_further_schemes():
    alone, beside = batch_of(["hops"]), batch_of(["hops", "preferences", "clock"])
    assert (alone.frames == beside.frames).all() and (alone.frame_indices == beside.frame_indices).all()
    assert alone.negatives == beside.negatives and list(beside.targets) == ["hops", "preferences", "clock"]


@pytest.mark.parametrize("name", [name for name in LABEL_SCHEMES if LABEL_SCHEMES[name].supervision != "prediction"])
def test_every_scheme_trains_the_net_and_its_seed_decides(name, tmp_path):
    net, again = trained(tmp_path / "a", [name]), trained(tmp_path / "b", [name])
    assert all(torch.isfinite(tensor).all() for tensor in net.values())
    assert all(torch.equal(tensor, again[key]) for key, tensor in net.items())


def test_the_objectives_of_several_schemes_are_summed(tmp_path):
    batch = batch_of(["hops", "pairs", "clock"])
    outputs, rng = said(batch), np.random.default_rng(0)
    parts = [objective(outputs, batch, select_schemes([name]), rng) for name in batch.targets]
    assert objective(outputs, batch, select_schemes(list(batch.targets)), rng) == pytest.approx(float(sum(parts)))
    assert trained(tmp_path, ["hops", "pairs"])


@pytest.mark.parametrize("name", [name for name in LABEL_SCHEMES if LABEL_SCHEMES[name].supervision != "prediction"])
def test_heads_that_know_the_labels_cost_less_than_heads_that_see_them_reversed(name):
    batch, schemes = batch_of([name], size=15), select_schemes([name])
    targets = batch.targets[name]
    reversed_ = said(batch, np.ascontiguousarray(1 - targets.progress))
    right = objective(said(batch), batch, schemes, np.random.default_rng(1))
    wrong = objective(reversed_, batch, schemes, np.random.default_rng(1))
    assert right < wrong


@pytest.mark.parametrize("name", ["ordinal", "rewind", "pairs"])
def test_a_mismatched_instruction_that_earns_is_punished(name):
    batch, rng = batch_of([name]), np.random.default_rng(0)
    assert batch.negatives_known.any()
    nothing, something = (
        scheme_loss_terms(said(batch, foreign=f), batch, name, LABEL_SCHEMES[name], rng) for f in (0.0, 0.5)
    )
    assert nothing["foreign"] == 0 and something["foreign"] == pytest.approx(0.45)
    assert all(something[term] == nothing[term] for term in ("completion", "contrast"))


@pytest.mark.parametrize("name", ["discovered", "rewind", "clock", "ordinal"])
def test_a_scheme_that_is_told_the_outcome_learns_nothing_from_completion_before_the_end(name):
    batch = batch_of([name])
    ends = np.array([[len(e) - 1 for e in DATA]])
    known = batch.targets[name].success_known
    assert known[:, 1].all() and np.isin(batch.frame_indices[known], ends).all()
    outputs = said(batch).success_logit.requires_grad_()
    lesson = replace(said(batch), success_logit=outputs)
    scheme_loss_terms(lesson, batch, name, LABEL_SCHEMES[name], np.random.default_rng(0))["completion"].backward()
    assert outputs.grad is not None and (outputs.grad[torch.from_numpy(~known)] == 0).all()


def test_what_a_scheme_does_not_know_of_failures_has_no_gradient():
    batch = batch_of(["rewind"])
    unknown = torch.from_numpy(~batch.targets["rewind"].progress_known.all(axis=1))
    hops = torch.zeros(12, 6, 6, requires_grad=True)
    told = scheme_loss_terms(
        replace(said(batch), hops=hops), batch, "rewind", LABEL_SCHEMES["rewind"], np.random.default_rng(0)
    )
    (told["forward"] + told["rewound"]).backward()
    assert unknown.any() and hops.grad is not None
    assert (hops.grad[unknown] == 0).all() and (hops.grad[~unknown] != 0).any()


def test_preferences_are_learned_best_by_the_curve_that_judges():
    """Cross-entropy is least where the odds are the judge's own."""
    batch = batch_of(["preferences"])
    scheme, truth = LABEL_SCHEMES["preferences"], batch.targets["preferences"].progress

    def cost(progress: np.ndarray) -> float:
        told = scheme_loss_terms(
            said(batch, progress.astype(np.float32)), batch, "preferences", scheme, np.random.default_rng(3)
        )
        return float(told["partial_return"] + told["regret"])

    assert cost(truth) < min(cost(0.6 * truth), cost(truth**3), cost(np.sqrt(truth)), cost(0 * truth))


def test_every_term_has_a_weight_and_is_taught_by_somebody():
    assert (
        set(LOSS_TERMS)
        == set(LOSS_WEIGHTS)
        == {term for scheme in LABEL_SCHEMES.values() for term in scheme.loss_terms}
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("hop",), r"unknown labeling scheme 'hop'. Did you mean 'hops'\? Available: clock, discovered"),
        ((), r"labels must name one labeling scheme or more, each once, got \[\]"),
        (("hops", "hops"), r"each once, got \[hops, hops\]"),
    ],
)
def test_mistaken_labels_are_answered_with_the_choices(labels, message):
    with pytest.raises(UserError, match=message):
        TrainConfig(label_schemes=labels)


def test_labels_that_teach_no_steps_from_frame_to_frame_need_the_forward_perspective(tmp_path):
    config = replace(QUICK, label_schemes=("ordinal", "preferences"))
    with pytest.raises(UserError, match=r"\[ordinal, preferences\] teach no hops .* fusion=mean .*fusion=forward"):
        train(DATA, config, RunFolder.open(tmp_path / "run"), NullReporter())
    net = train(DATA, replace(config, fusion="forward"), RunFolder.open(tmp_path / "other"), NullReporter())
    assert net.config.fusion == "forward"
