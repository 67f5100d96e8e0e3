"""Direction nets beside an alignment: how they move its belief, and how far a demonstration says they count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from real_videos import bridge, encoder, with_frames

from embodied_rm.api.demonstration_reward_model import open_direction_net
from embodied_rm.experiments.real_evaluation.video_cases import reverse
from embodied_rm.metrics import voc
from embodied_rm.models.in_context.alignment import DRIFT, transition_probs
from embodied_rm.models.in_context.demonstration_checkpoint import load_demonstration_model, save_demonstration_model
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.direction import NO_SKILL, DirectionSkill, Transitions, blend_progress, mean_skill
from embodied_rm.models.in_context.encoded_demonstration import encode_demonstration
from embodied_rm.models.scoring import score_episodes

DEMONSTRATION = "pnp_crl_success"
TRANSITIONS = Transitions(*(transition_probs([7, 5], drift) for drift in (0.0, DRIFT, -DRIFT)))


def test_directed_transitions_are_probabilities_and_mirror_each_other():
    for probs in TRANSITIONS:
        torch.testing.assert_close(probs.sum(dim=1), torch.ones(12))
    single = [transition_probs([9], drift) for drift in (DRIFT, -DRIFT)]
    torch.testing.assert_close(single[0], single[1].flip(0, 1))


def test_an_unknown_direction_is_the_steady_transition_and_a_known_one_moves_the_belief():
    belief = torch.zeros(3, 12)
    belief[:, 3] = 1
    predicted = TRANSITIONS.predict(belief, torch.tensor([-1.0, 0.0, 1.0]))
    torch.testing.assert_close(predicted.sum(dim=1), torch.ones(3))
    torch.testing.assert_close(predicted[1], TRANSITIONS.steady[3])
    backward, still, forward = predicted[:, :7] @ torch.arange(7.0)
    assert backward < still < forward


def test_variances_decide_the_weights_and_no_trust_leaves_the_alignment():
    aligned, predicted = torch.tensor([0.2, 0.2]), torch.tensor([0.8, 0.8])
    variance = torch.tensor([0.0, 0.1])
    assert blend_progress(aligned, variance, predicted, NO_SKILL).tolist() == aligned.tolist()
    sharp, wide = blend_progress(aligned, variance, predicted, DirectionSkill(1.0, 0.04))
    assert 0.2 < sharp < wide < 0.8
    equal = blend_progress(aligned, torch.tensor([0.04 - 0.05**2]), predicted, DirectionSkill(1.0, 0.04))
    assert equal[0] == pytest.approx(0.5)


def test_the_skill_of_several_demonstrations_is_their_mean():
    assert mean_skill([DirectionSkill(0.2, 0.1), DirectionSkill(0.4, 0.3)]) == pytest.approx((0.3, 0.2))


def test_a_demonstration_that_the_nets_order_wrongly_gives_no_trust():
    """Pick and place run backward is a demonstration whose order the nets deny."""
    net = open_direction_net(encoder())
    assert encode_demonstration(bridge(DEMONSTRATION), encoder(), direction_net=net).skill.trust > 0.9
    backward = with_frames(bridge(DEMONSTRATION), reverse)
    assert encode_demonstration(backward, encoder(), direction_net=net).skill.trust == 0
    assert encode_demonstration(bridge(DEMONSTRATION), encoder()).skill == NO_SKILL


def test_the_nets_help_with_a_reversed_video_and_survive_a_file(tmp_path):
    """The arm of this demonstration ends elsewhere, so the alignment does not find the start of the reversed video."""
    alone = DemonstrationModel([bridge("drawer_ddpm_success")], encoder())
    helped = DemonstrationModel([bridge("drawer_ddpm_success")], encoder(), open_direction_net(encoder()))
    backward = with_frames(bridge("drawer_gcbc_success"), reverse)
    curves = [score_episodes(model, [backward])[0].progress for model in (alone, helped)]
    assert voc(curves[1]) < voc(curves[0]) - 0.1
    save_demonstration_model(tmp_path, helped, {})
    stored = score_episodes(load_demonstration_model(tmp_path), [backward])[0].progress
    np.testing.assert_allclose(stored, curves[1], atol=0.01)  # cells are stored in half precision
