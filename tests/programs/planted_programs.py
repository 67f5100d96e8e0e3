"""Programs whose verdict is known: good ones of every task, and bad ones of six kinds."""

from __future__ import annotations

from typing import NamedTuple

PICK = """near = distance(tool_pos, object_pos) < 0.025
held = distance(tool_pos, object_pos) < 0.03 and gripper_opening > 0.03 and gripper_opening < 0.05
reach = proximity(distance(tool_pos, object_pos), distance(start_tool_pos, start_object_pos))
close = clip((0.08 - gripper_opening) / 0.04, 0, 1)
"""
PULL = """at_knob = distance(tool_pos, point_knob) < 0.025
reach_knob = proximity(distance(tool_pos, point_knob), distance(start_tool_pos, start_point_knob))
close_on_knob = clip((0.08 - gripper_opening) / 0.06, 0, 1)
opened = clip(joint_drawer / 0.13, 0, 1)
"""
PLACE = """far = distance(object_pos[:2], target[:2])
over = far < 0.03
released = gripper_opening > 0.052 or distance(tool_pos, object_pos) > 0.06
placed = over and abs(object_pos[2] - target[2]) < 0.012
carry = proximity(far, distance(start_object_pos[:2], target[:2]))
lower = proximity(abs(object_pos[2] - target[2]), 0.1)
place = 0.5 * carry + 0.4 * carry * lower
put = where(placed, 0.9 + 0.1 * released, place)
"""
IN_TRAY = """off = object_pos - point_tray
in_tray = max(abs(off[0]), abs(off[1])) < 0.08 and object_pos[2] < 0.09 and not held
"""

GOOD_PROGRAMS: dict[str, str] = {
    "lift_cube": PICK + "progress = stages(reach, near, close, held, (object_pos[2] - start_object_pos[2]) / 0.12)",
    "open_drawer": PULL + "progress = stages(reach_knob, at_knob, close_on_knob, joint_drawer > 0.015, opened)",
    "close_drawer": """gap = max(joint_drawer - 0.01, 0)
shut = proximity(gap, max(start_joint_drawer - 0.01, 0.001))
reach = proximity(distance(tool_pos, point_knob), distance(start_tool_pos, start_point_knob))
progress = 0.2 * max(reach, shut) * (shut < 1) + 0.8 * shut + 0.2 * (shut == 1)""",
    "press_button": """target = object_pos
reach = proximity(distance(tool_pos[:2], target[:2]), distance(start_tool_pos[:2], start_object_pos[:2]))
depth = (start_object_pos[2] - object_pos[2]) / 0.018
progress = stages(reach, distance(tool_pos[:2], target[:2]) < 0.03, depth)""",
    "turn_lever": """sign = 1 if side_index == 1 else -1
angle = sign * joint_lever
swing = clip((angle - sign * start_joint_lever) / max(1.047 - sign * start_joint_lever, 0.01), 0, 1)
progress = swing""",
    "place_in_bowl": PICK
    + "target = point_bowl\n"
    + PLACE.replace("abs(object_pos[2] - target[2]) < 0.012", "object_pos[2] - target[2] < 0.05")
    + "progress = stages(reach, near, close, held or placed, put)",
    "stack_cubes": PICK
    + "height = other_pos[2] + 0.04\n"
    + "target = other_pos\n"
    + PLACE.replace("target[2]", "height")
    + "progress = stages(reach, near, close, held or placed, put)",
    "place_in_drawer": PICK
    + IN_TRAY
    + """far = distance(start_object_pos[:2], start_point_tray[:2])
over = proximity(distance(object_pos[:2], point_tray[:2]), far)
progress = stages(reach, near, close, held, 0.8 * over, in_tray, 1)""",
    "push_to_zone": """zone = point_left_zone if side_index == 0 else point_right_zone
far = distance(object_pos[:2], zone[:2])
push = proximity(far - 0.03, distance(start_object_pos[:2], zone[:2]) - 0.03)
off = object_pos - zone
inside = max(abs(off[0]), abs(off[1])) < 0.035
reach = proximity(distance(tool_pos, object_pos), distance(start_tool_pos, start_object_pos))
progress = where(inside, 1, 0.1 * reach + 0.85 * push)""",
    "insert_peg": PICK
    + """first = distance(object_pos, point_peg_a_tip) < distance(object_pos, point_peg_b_tip)
tip = point_peg_a_tip if first else point_peg_b_tip
across = distance(tip[:2], point_hole[:2])
depth = (point_hole[2] - tip[2]) / 0.02
carry = proximity(across, distance(start_object_pos[:2], start_point_hole[:2]))
inside = across < 0.006 and depth > 0
progress = stages(reach, near, close, held, 0.9 * carry, inside, depth)""",
    "cube_in_drawer": PULL
    + PICK
    + IN_TRAY
    + """is_open = joint_drawer > 0.1
shut = proximity(joint_drawer - 0.02, 0.11)
fill = stages(reach, near, close, held, proximity(distance(object_pos[:2], point_tray[:2]), 0.3))
progress = stages(opened, is_open, fill, in_tray, shut)""",
    "open_then_lift": PULL
    + PICK
    + """lift = stages(reach, near, close, held, (object_pos[2] - start_object_pos[2]) / 0.12)
progress = stages(opened, joint_drawer > 0.13, lift)""",
    "open_place_close": PULL
    + PICK
    + IN_TRAY
    + """shut = proximity(joint_drawer - 0.01, 0.12)
fill = stages(reach, near, close, held, proximity(distance(object_pos[:2], point_tray[:2]), 0.3))
progress = stages(opened, joint_drawer > 0.1, fill, in_tray, shut)""",
    "sort_two": """tray = point_left_tray if side_index == 0 else point_right_tray
other_tray = point_right_tray if side_index == 0 else point_left_tray
far_1 = distance(object_pos[:2], tray[:2])
far_2 = distance(other_pos[:2], other_tray[:2])
free_1 = distance(tool_pos, object_pos) > 0.06 or gripper_opening > 0.052
free_2 = distance(tool_pos, other_pos) > 0.06 or gripper_opening > 0.052
in_1 = far_1 < 0.05 and free_1 and object_pos[2] < 0.06
in_2 = far_2 < 0.05 and free_2 and other_pos[2] < 0.06
carry_1 = proximity(far_1, distance(start_object_pos[:2], tray[:2]))
carry_2 = proximity(far_2, distance(start_other_pos[:2], other_tray[:2]))
progress = 0.5 * where(in_1, 1, 0.9 * carry_1) + 0.5 * where(in_2, 1, 0.9 * carry_2)""",
}
"""Task -> a program without an issue."""


class PlantedProgram(NamedTuple):
    """A bad program, and the kinds of issues that name what is wrong with it."""

    task: str
    defect: str
    source: str
    right_kinds: tuple[str, ...]


def _planted(defect: str, kinds: tuple[str, ...], programs: list[tuple[str, str]]) -> list[PlantedProgram]:
    return [PlantedProgram(task, defect, source, kinds) for task, source in programs]


DISTANCE_SHARE = "proximity(distance(tool_pos, object_pos), distance(start_tool_pos, start_object_pos))"
BAD_PROGRAMS: list[PlantedProgram] = [
    *_planted(
        "wrong sign",
        ("wrong_sign",),
        [
            ("lift_cube", f"progress = 1 - {DISTANCE_SHARE}"),
            ("lift_cube", "reward = distance(tool_pos, object_pos) - 0.5 * (object_pos[2] - start_object_pos[2])"),
            ("open_drawer", "progress = 1 - clip(joint_drawer / 0.13, 0, 1)"),
            ("close_drawer", "progress = clip(joint_drawer / 0.16, 0, 1)"),
            ("press_button", "progress = clip(1 - (start_object_pos[2] - object_pos[2]) / 0.018, 0, 1)"),
            (
                "push_to_zone",
                "zone = point_left_zone if side_index == 0 else point_right_zone\n"
                "progress = 1 - exp(-4 * distance(object_pos[:2], zone[:2]))",
            ),
            ("turn_lever", "sign = 1 if side_index == 1 else -1\nreward = -sign * joint_lever"),
        ],
    ),
    *_planted(
        "wrong object",
        ("confuses", "not_reached", "constant"),
        [
            (
                "lift_cube",
                PICK.replace("object_pos", "other_pos")
                + "progress = stages(reach, near, close, held, (other_pos[2] - start_other_pos[2]) / 0.12)",
            ),
            ("press_button", "progress = clip((start_other_pos[2] - other_pos[2]) / 0.018, 0, 1)"),
            ("turn_lever", "progress = clip(abs(joint_lever) / 1.047, 0, 1)"),
            (
                "push_to_zone",
                "left = proximity(distance(object_pos[:2], point_left_zone[:2]) - 0.03, 0.3)\n"
                "right = proximity(distance(object_pos[:2], point_right_zone[:2]) - 0.03, 0.3)\n"
                "progress = max(left, right)",
            ),
            (
                "stack_cubes",
                "on_top = distance(object_pos[:2], other_pos[:2]) < 0.022 and other_pos[2] > object_pos[2]\n"
                "progress = stages(" + DISTANCE_SHARE + ", on_top, 1)",
            ),
            ("open_drawer", "progress = " + DISTANCE_SHARE),
            (
                "place_in_bowl",
                "progress = stages(" + DISTANCE_SHARE + ", distance(other_pos[:2], point_bowl[:2]) < 0.03, 1)",
            ),
        ],
    ),
    *_planted(
        "unreachable",
        ("not_reached",),
        [
            ("lift_cube", PICK + "progress = stages(reach, near, close, held and object_pos[2] > 0.6, 1)"),
            (
                "lift_cube",
                PICK + "progress = stages(reach, near, close, held, (object_pos[2] - start_object_pos[2]) / 0.5)",
            ),
            ("open_drawer", PULL + "progress = stages(reach_knob, at_knob, close_on_knob, joint_drawer > 0.3, 1)"),
            ("press_button", "progress = clip((start_object_pos[2] - object_pos[2]) / 0.1, 0, 1)"),
            ("turn_lever", "sign = 1 if side_index == 1 else -1\nprogress = clip(sign * joint_lever / 6.28, 0, 1)"),
            ("stack_cubes", PICK + "progress = stages(reach, near, close, object_pos[2] > 0.5, 1)"),
            ("place_in_bowl", PICK + "progress = stages(reach, near, close, held, 0.5, held and not held, 1)"),
        ],
    ),
    *_planted(
        "constant",
        ("constant",),
        [
            ("lift_cube", "progress = 0.5"),
            ("open_drawer", "reward = 1"),
            ("press_button", "progress = clip(tool_pos[2] + 2, 0, 1)"),
            ("push_to_zone", "progress = 1 if gripper_opening > 1 else 0"),
            ("turn_lever", "reward = joint_lever - joint_lever"),
        ],
    ),
    *_planted(
        "undefined",
        ("undefined",),
        [
            (
                "lift_cube",
                "progress = clip((object_pos[2] - start_object_pos[2]) / (object_pos[2] - object_pos[2]), 0, 1)",
            ),
            ("lift_cube", "reward = log(object_pos[2] - 0.05)"),
            ("open_drawer", "progress = sqrt(joint_drawer - 0.05)"),
            ("close_drawer", "reward = 1 / (joint_drawer - start_joint_drawer)"),
            ("press_button", "progress = (start_object_pos[2] - object_pos[2]) ** -0.5"),
            ("push_to_zone", "reward = exp(9000 * distance(object_pos, tool_pos)) - 1"),
        ],
    ),
    *_planted(
        "hack",
        ("confuses", "high_start", "pays_waiting"),
        [
            ("lift_cube", PICK + "progress = stages(reach, near, close)"),  # done once the fingers close
            ("lift_cube", "progress = clip((0.08 - gripper_opening) / 0.035, 0, 1)"),  # closed fingers are enough
            ("lift_cube", f"reward = {DISTANCE_SHARE}"),  # to hover near the cube earns most
            ("open_drawer", PULL + "reward = reach_knob + close_on_knob"),
            ("stack_cubes", "far = distance(object_pos[:2], other_pos[:2])\nprogress = clip(1 - far / 0.2, 0, 1)"),
            (
                "place_in_bowl",
                "target = point_bowl\nprogress = proximity(distance(object_pos[:2], target[:2]) - 0.02, 0.3)",
            ),
            ("press_button", "progress = proximity(distance(tool_pos[:2], object_pos[:2]) - 0.02, 0.3)"),
            ("close_drawer", "progress = clip(1 - 0.3 * joint_drawer, 0, 1)"),  # 0.95 before anything is done
        ],
    ),
]
"""40 programs that must be refused."""
