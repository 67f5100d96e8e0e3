"""torchrl: rewards by value in every kind of batch, specs, partial resets and steps, and ends by the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import (
    Compose,
    EnvBase,
    GymWrapper,
    ParallelEnv,
    SerialEnv,
    StepCounter,
    ToTensorImage,
    TransformedEnv,
)
from torchrl.envs.utils import check_env_specs

import embodied_rm as erm
from embodied_rm.api.local_client import LocalClient
from embodied_rm.client import ShapingConfig, frames_from_observation
from embodied_rm.client.integrations.torchrl import LearnedRewardTransform
from tests.integrations.known_rewards import (
    DONE,
    GAMMA,
    MODEL_DONE,
    MODEL_REWARDS,
    MODEL_SUCCESS,
    MODEL_TERMINATED,
    REWARDS,
    STEPS,
    TERMINATED,
    KnownImageEnv,
    KnownImageModel,
    TimeLimitsOnly,
)


def make_rows(**options: Any) -> list[Any]:
    return [lambda row=row: GymWrapper(KnownImageEnv(row, **options)) for row in range(2)]


class NoInfos(KnownImageEnv):
    """torchrl reads the infos of a vector only if those of resets and steps have the same entries."""

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0], {}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {}


def make_vector(
    mode: AutoresetMode, env_class: Any = KnownImageEnv, vector: Any = SyncVectorEnv, **options: Any
) -> EnvBase:
    makers = [lambda row=row: env_class(row, **options) for row in range(2)]
    return GymWrapper(vector(makers, autoreset_mode=mode))


def make_same_step_vector(vector: Any = SyncVectorEnv) -> EnvBase:
    env = make_vector(AutoresetMode.SAME_STEP, NoInfos, vector, has_state=False)
    for row in env._env.envs:
        row.episode = -1  # torchrl has stepped it to learn what its infos are
    return env


def wrap(env: EnvBase, model: Any = None, **options: Any) -> TransformedEnv:
    options.setdefault("get_frames", frames_from_observation(front="pixels"))
    return erm.LearnedReward(env, model or KnownImageModel(), instruction="go", gamma=GAMMA, **options)


def run(env: EnvBase) -> TensorDict:
    return env.rollout(STEPS, break_when_any_done=False)


PLAIN = frames_from_observation(front="observation")
"""torchrl's name of an observation that is no dictionary."""


def column(rollout: TensorDict, key: str) -> np.ndarray:
    return rollout["next", key].squeeze(-1).numpy()


KINDS = {
    "SerialEnv": lambda: SerialEnv(2, make_rows()),
    "ParallelEnv": lambda: ParallelEnv(2, make_rows()),
    "vector without autoreset": lambda: make_vector(AutoresetMode.DISABLED),
    "rows of rows": lambda: SerialEnv(1, [lambda: SerialEnv(2, make_rows())]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_and_ends_are_those_computed_by_hand(kind: str) -> None:
    model = KnownImageModel()
    env = wrap(KINDS[kind](), model)
    assert isinstance(env, TransformedEnv)
    rollout = run(env).reshape(2, STEPS)
    assert rollout["next", "reward"].dtype == torch.float32 and rollout["next", "reward"].shape == (2, STEPS, 1)
    np.testing.assert_allclose(column(rollout, "reward"), REWARDS, atol=1e-6)
    np.testing.assert_array_equal(column(rollout, "terminated"), TERMINATED)
    np.testing.assert_array_equal(column(rollout, "done"), DONE)
    # The entries are those of the states: before a reset in "next", after it at the root.
    np.testing.assert_allclose(column(rollout, "potential")[0], [0.4, 0.8, 0.6, 0.4, 0.6, 1.0], atol=1e-6)
    np.testing.assert_allclose(rollout["potential"][1, :, 0], [0.4, 0.2, 0.6, 0.2, 1.0, 0.0], atol=1e-6)
    assert model.kinds == {"Tensor"}, "images stay tensors"
    env.close()


def test_one_environment_without_a_batch() -> None:
    rollout = run(wrap(GymWrapper(KnownImageEnv(1))))
    assert rollout.batch_size == (STEPS,)
    np.testing.assert_allclose(column(rollout, "reward"), REWARDS[1], atol=1e-6)


def test_a_vector_that_resets_in_the_step_keeps_its_last_images() -> None:
    rollout = run(wrap(make_same_step_vector(), get_frames=PLAIN))
    # Where all rows end at once, torchrl resets the vector once more: the next episode of each row is left out.
    row_0, row_1 = [*REWARDS[0, :3], *REWARDS[0, :3]], [*REWARDS[1, :3], REWARDS[1, 5], *REWARDS[1, :2]]
    np.testing.assert_allclose(column(rollout, "reward"), [row_0, row_1], atol=1e-6)


def test_last_images_that_are_lost_are_noticed() -> None:
    """Vectors of torch environments give torchrl no final observation: it fills in zeros."""

    class NoFinalObservation(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {}

    env = wrap(make_same_step_vector(NoFinalObservation), get_frames=PLAIN)
    with pytest.warns(UserWarning, match="the last frames of an ended episode are black"):
        run(env)


@pytest.mark.parametrize("kind", ["SerialEnv", "vector without autoreset"])
def test_success_of_the_model_ends_an_episode_and_its_row_is_reset(kind: str) -> None:
    rollout = run(wrap(KINDS[kind](), **MODEL_SUCCESS))
    np.testing.assert_allclose(column(rollout, "reward"), MODEL_REWARDS, atol=1e-6)
    np.testing.assert_array_equal(column(rollout, "terminated"), MODEL_TERMINATED)
    np.testing.assert_array_equal(column(rollout, "done"), MODEL_DONE)
    np.testing.assert_array_equal(column(rollout, "truncated"), MODEL_DONE & ~MODEL_TERMINATED)
    assert column(rollout, "predicted_success")[1].tolist() == [0, 0, 0, 1, 0, 0]


def test_success_of_the_model_at_a_time_limit_is_terminal() -> None:
    rollout = run(wrap(GymWrapper(TimeLimitsOnly(KnownImageEnv(0))), **MODEL_SUCCESS))
    assert column(rollout, "done").tolist() == DONE[0].tolist()
    assert column(rollout, "terminated").tolist() == [False] * 5 + [True]
    assert column(rollout, "truncated").tolist() == [False, True, True, False, False, False]
    np.testing.assert_allclose(column(rollout, "reward"), [0, 0, 0.3, 0, -0.1, 2.4], atol=1e-6)


def test_the_specs_are_those_of_the_data() -> None:
    env = wrap(SerialEnv(2, make_rows()))
    check_env_specs(env)
    assert env.full_reward_spec["reward"].dtype == torch.float32
    assert set(env.observation_keys) == {"pixels", "observation", "potential", "predicted_success"}


def test_a_row_that_is_not_stepped_earns_nothing_and_continues_later() -> None:
    env = wrap(SerialEnv(2, make_rows()))
    state = env.rand_action(env.reset()).set("_step", torch.tensor([[True], [False]]))
    state = env.step(state)["next"]
    assert state["reward"].flatten().tolist() == pytest.approx([REWARDS[0, 0], 0.0])
    state = env.step(env.rand_action(state.exclude("reward")))["next"]
    assert state["reward"].flatten().tolist() == pytest.approx([REWARDS[0, 1], REWARDS[1, 0]])


def test_a_partial_reset_opens_an_episode_in_its_rows_only() -> None:
    env = wrap(SerialEnv(2, make_rows()))
    state = env.step(env.rand_action(env.reset()))["next"]
    reset = env.reset(TensorDict({**state, "_reset": torch.tensor([[True], [False]])}, [2]))
    assert reset["potential"].flatten().tolist() == pytest.approx([0.0, 0.2])
    rewards = env.step(env.rand_action(reset))["next", "reward"].flatten().tolist()
    assert rewards == pytest.approx([GAMMA * 0.6 - 0.0, GAMMA * 0.6 - 0.2])


def test_it_is_a_transform_among_others_and_its_time_limits_count() -> None:
    """A limit of three steps ends the first episode of row 1, whose last image is scored in spite of `score_every`."""
    client, shaping = LocalClient(KnownImageModel(), None, 5), ShapingConfig(gamma=GAMMA, score_every=2)
    learned = LearnedRewardTransform(
        client, shaping, get_frames=frames_from_observation(front="pixels"), instructions="go"
    )
    env = TransformedEnv(GymWrapper(KnownImageEnv(1)), Compose(StepCounter(3), learned, ToTensorImage()))
    check_env_specs(env)
    base = env.base_env._env
    base.episode = -1
    rollout = env.rollout(3, break_when_any_done=False)
    np.testing.assert_allclose(column(rollout, "potential"), [0.4, 0.6, 0.8], atol=1e-6)
    np.testing.assert_allclose(column(rollout, "reward"), [0.2 - 0.4, 0.3 - 0.4, 0.4 - 0.6], atol=1e-6)


def test_a_collector_and_a_replay_buffer_hold_the_learned_reward() -> None:
    env = wrap(SerialEnv(2, make_rows()))
    collector = Collector(env, None, frames_per_batch=2 * STEPS, total_frames=4 * STEPS)
    buffer = ReplayBuffer(storage=LazyTensorStorage(100))
    for batch in collector:
        np.testing.assert_allclose(column(batch, "reward"), REWARDS, atol=1e-6)
        buffer.extend(batch.reshape(-1))
    assert len(buffer) == 4 * STEPS
    collector.shutdown()


def test_other_uses_are_refused() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(4), transform=wrap(GymWrapper(KnownImageEnv(0))).transform.clone(), batch_size=1
    )
    with pytest.raises(ValueError, match="append it to an environment"):
        buffer.extend(TensorDict({"reward": torch.zeros(4)}, [4]))
        buffer.sample()
    with pytest.raises(ValueError, match="torchrl drops its last observation"):
        wrap(GymWrapper(KnownImageEnv(0), auto_reset=True)).reset()
    with pytest.raises(ValueError, match="success_source=model ends episodes, and this environment resets them itself"):
        run(wrap(make_same_step_vector(), get_frames=PLAIN, **MODEL_SUCCESS))
