"""A red box on a rail, seen by a camera: the smallest manager-based environment of mjlab with pictures."""

from __future__ import annotations

from typing import Any

import mujoco
import torch
from mjlab.actuator.xml_actuator import XmlActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.mdp import joint_pos_rel, joint_vel_rel, time_out
from mjlab.envs.mdp.actions import JointEffortActionCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sensor import CameraSensorCfg
from mjlab.sim import MujocoCfg, SimulationCfg

STEP_S = 0.04
RAIL = """
<mujoco>
  <worldbody>
    <light pos="0 0 3" dir="0 0 -1"/>
    <body name="box">
      <joint name="rail" type="slide" axis="1 0 0" range="-0.1 1.1" damping="4"/>
      <geom type="box" size="0.15 0.15 0.05" rgba="0.8 0.1 0.1 1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail" gear="8"/></actuator>
</mujoco>
"""


def make_spec() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_string(RAIL)


def position(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Positions of the boxes on their rails, [N] in m."""
    return env.scene["box"].data.joint_pos[:, 0]


def has_arrived(env: ManagerBasedRlEnv) -> torch.Tensor:
    return position(env) > 0.3


def push_env_cfg(num_envs: int, num_steps: int, **options: Any) -> ManagerBasedRlEnvCfg:
    """An environment without rewards, whose episodes end by a time limit only."""
    box = {"asset_cfg": SceneEntityCfg("box")}
    actuators = (XmlActuatorCfg(target_names_expr=("rail",)),)
    terms = {
        "position": ObservationTermCfg(func=joint_pos_rel, params=box),
        "velocity": ObservationTermCfg(func=joint_vel_rel, params=box),
    }
    return ManagerBasedRlEnvCfg(
        decimation=4,
        scene=SceneCfg(
            num_envs=num_envs,
            entities={"box": EntityCfg(spec_fn=make_spec, articulation=EntityArticulationInfoCfg(actuators=actuators))},
            sensors=(CameraSensorCfg(name="above", pos=(0.5, 0, 1.6), width=64, height=64),),
        ),
        observations={"actor": ObservationGroupCfg(terms), "critic": ObservationGroupCfg(terms)},
        actions={"push": JointEffortActionCfg(entity_name="box", actuator_names=("rail",), scale=1.0)},
        terminations={"time_out": TerminationTermCfg(func=time_out, time_out=True)},
        sim=SimulationCfg(mujoco=MujocoCfg(timestep=STEP_S / 4)),
        episode_length_s=num_steps * STEP_S,
        seed=0,
        **options,
    )
