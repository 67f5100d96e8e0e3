"""`play` and the contact sheet of `tasks`: policies, divergences, and images of the simulator."""

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from PIL import Image
from read_video import read_frames

from embodied_rm.cli.main import main
from embodied_rm.report.episode_images import GAP_PX, LINE_HEIGHT_PX, ContactSheetRow, draw_contact_sheet, make_grid
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, save_policy
from embodied_sim.registry import find_task, task_names
from embodied_sim.robots import ROBOTS
from embodied_sim.vec_env import VIEW_NAMES, TabletopVecEnv

SIZE = 64
SMALL = ("env.num_envs=2", f"env.image_size={SIZE}")


def play_metrics(folder: Path) -> dict[str, int]:
    return json.loads((folder / "metrics.json").read_text())["play"]


def cells(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the images in a frame of the video: [rows, columns, SIZE, SIZE, 3]."""
    starts = [[(r * (SIZE + GAP_PX), c * (SIZE + GAP_PX)) for c in range(columns)] for r in range(rows)]
    return np.array([[image[y : y + SIZE, x : x + SIZE] for y, x in row] for row in starts])


def nearest(frames: np.ndarray, images: np.ndarray) -> list[int]:
    """Return, for each frames image, the index of the most similar one of `images` [n, SIZE, SIZE, 3]."""
    error = frames.reshape(-1, 1, SIZE, SIZE, 3).astype(float) - images[None]
    return (error**2).mean(axis=(2, 3, 4)).argmin(axis=1).tolist()


def test_rows_are_envs_and_columns_are_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "task=open_drawer", "seed=5", f"out={tmp_path / 'run'}", *SMALL]) == 0
    video = read_frames(tmp_path / "run" / "play.mp4")
    assert video.shape[1:] == (2 * SIZE + GAP_PX, 3 * SIZE + 2 * GAP_PX, 3)
    envs = TabletopVecEnv("open_drawer", 2, image_size=SIZE)
    envs.reset(seed=5)
    assert nearest(cells(video[0], 2, 3), envs.render_views().reshape(-1, SIZE, SIZE, 3)) == [0, 1, 2, 3, 4, 5]
    output = capsys.readouterr().out
    assert all(instruction in output for instruction in envs.instructions)
    envs.close()


def test_the_expert_succeeds_and_random_actions_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instructions_by_policy = []
    for policy, successes in (("expert", 2), ("random", 0)):
        assert main(["play", "task=lift_cube", f"policy={policy}", f"out={tmp_path / policy}", *SMALL]) == 0
        assert play_metrics(tmp_path / policy) == {"episodes": 2, "successes": successes, "diverged": 0}
        output = capsys.readouterr().out
        assert f"success  {successes} of 2" in output
        instructions_by_policy.append([line.split(":")[0] for line in output.splitlines() if line.startswith("  env ")])
    assert len(instructions_by_policy[0]) == 2 and instructions_by_policy[0] == instructions_by_policy[1], (
        "the same episodes"
    )
    expert, random = (read_frames(tmp_path / policy / "play.mp4") for policy in ("expert", "random"))
    assert len(random) == 61, "the first image and one per step up to the time limit"
    assert len(expert) < 50, "success ends the episode"


def test_a_stored_policy_plays(tmp_path: Path) -> None:
    """A policy that always moves to the left: the video ends where those actions lead."""
    policy = GaussianPolicy(PolicySpec(obs_dim=29, action_dim=4))
    for parameter in policy.parameters():
        parameter.data.zero_()
    policy.mlp[-1].bias.data[1] = 0.1
    save_policy(tmp_path / "clone" / "policy", policy)
    assert main(["play", "task=lift_cube", f"policy={tmp_path / 'clone'}", f"out={tmp_path / 'run'}", *SMALL]) == 0
    envs = TabletopVecEnv("lift_cube", 2, image_size=SIZE, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    images = [envs.render_views()]
    for _ in range(60):
        envs.step(np.tile(np.float32([0, 0.1, 0, 0]), (2, 1)))
    images.append(envs.render_views())
    envs.close()
    video = read_frames(tmp_path / "run" / "play.mp4")
    all_images = np.concatenate(images).reshape(-1, SIZE, SIZE, 3)
    assert nearest(cells(video[0], 2, 3), all_images) == [0, 1, 2, 3, 4, 5]
    assert nearest(cells(video[60], 2, 3), all_images) == [6, 7, 8, 9, 10, 11]
    assert play_metrics(tmp_path / "run")["successes"] == 0


def test_ended_rows_repeat_their_last_frame() -> None:
    def video(*values: int) -> np.ndarray:
        return np.array(values, np.uint8)[:, None, None, None].repeat(2, 1).repeat(2, 2).repeat(3, 3)

    frames = make_grid([[video(1, 2, 3), video(4, 5, 6)], [video(7), video(8)]])
    assert frames.shape == (3, 2 + GAP_PX + 2, 2 + GAP_PX + 2, 3)
    assert frames[:, 0, 0, 0].tolist() == [1, 2, 3] and frames[:, 0, -1, 0].tolist() == [4, 5, 6]
    assert (frames[:, -1, 0] == 7).all() and (frames[:, -1, -1] == 8).all()
    assert (frames[:, 2:-2] == 0).all() and (frames[:, :, 2:-2] == 0).all()


def make_divergence(folder: Path, robot: str = "panda", delay: int = 2) -> tuple[Path, np.ndarray]:
    """The file of an environment that diverges: a cube comes down on the hand at 9 km/s, `flight` time steps away.

    Also returns the views of its last good state.
    """
    envs = TabletopVecEnv(
        "lift_cube", 2, image_size=SIZE, robot=robot, autoreset_mode=AutoresetMode.DISABLED, divergence_dump_dir=folder
    )
    envs.reset(seed=7)
    envs.step(np.ones((2, 4), np.float32))
    physics, cube, speed = envs._backend, envs.model.joint("red"), 9000.0
    qpos, qvel = physics.qpos[1:].copy(), physics.qvel[1:].copy()
    above = speed * envs.model.opt.timestep * delay
    qpos[0, cube.qposadr[0] :][:3] = envs.state.tool_pos[1] + [0.03, 0.02, 0.02 + above]
    qvel[0, cube.dofadr[0] :][:3] = [0.0, 0.0, -speed]
    physics.set_state(np.array([1]), qpos, qvel)
    last_views = envs.render_views()[1]
    assert envs.step(np.ones((2, 4), np.float32))[-1]["diverged"].tolist() == [False, True]
    envs.close()
    (path,) = folder.iterdir()
    return path, last_views


@pytest.mark.parametrize(("robot", "delay"), [("panda", 0), ("panda", 2), ("my_arm.xml", 2)])
def test_a_divergence_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str], robot: str, delay: int) -> None:
    """Same scene, robot, colors and last good state; it diverges again for the same reason."""
    if robot.endswith(".xml"):
        folder = shutil.copytree(ROBOTS["six_axis"].mjcf_path.parent, tmp_path / "arms")
        robot = str((folder / ROBOTS["six_axis"].mjcf_path.name).rename(folder / robot))
    path, last_views = make_divergence(tmp_path / "divergences", robot, delay)
    robot_args = [f"env.robot={robot}"] if robot.endswith(".xml") else []
    assert main(["play", f"replay={path}", f"out={tmp_path / 'run'}", f"env.image_size={SIZE}", *robot_args]) == 0
    metrics, reason = play_metrics(tmp_path / "run"), "a speed went beyond 10000"
    assert metrics == {
        "replay": str(path),
        "task": "lift_cube",
        "robot": robot,
        "then": reason,
        "now": reason,
        "time_steps": delay,
    }
    assert capsys.readouterr().out.count(reason) == 2
    video = read_frames(tmp_path / "run" / "play.mp4")
    assert len(video) == 4 + delay, "a second of the last good state, then each good time step"
    assert nearest(cells(video[0], 1, 3), last_views) == [0, 1, 2]
    sheet = np.asarray(Image.open(tmp_path / "run" / "before.png"))
    for column, image in enumerate(last_views):
        np.testing.assert_array_equal(
            sheet[2 * LINE_HEIGHT_PX :, GAP_PX + column * (SIZE + GAP_PX) :][:SIZE, :SIZE], image
        )


def test_a_divergence_that_does_not_recur_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = make_divergence(tmp_path / "divergences")
    path.write_text(json.dumps({**json.loads(path.read_text()), "qvel": [0.0] * 22}))
    assert main(["play", f"replay={path}", f"out={tmp_path / 'run'}", f"env.image_size={SIZE}"]) == 0
    assert play_metrics(tmp_path / "run")["now"] is None and play_metrics(tmp_path / "run")["time_steps"] == 10
    assert "it did not diverge again" in capsys.readouterr().out


def test_a_divergence_has_its_own_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = make_divergence(tmp_path / "divergences")
    assert main(["play", f"replay={path}", "task=lift_cube", f"out={tmp_path / 'same'}"]) == 0
    content = json.loads(path.read_text())
    mistakes = {
        ("task=open_drawer",): (content, "is a divergence of the task lift_cube, got task=open_drawer: leave task out"),
        ("env.views=[top]",): (content, "unknown camera 'top'"),
        (): ({**content, "task": "press_button"}, "the divergence dump is of another scene: mocap_pos must be 6"),
        ("seed=1",): ({**content, "qpos": [float("nan")] * 24}, "qpos must be 24 finite numbers"),
        ("seed=2",): ({**content, "ctrl": "none"}, "ctrl of the divergence dump is not an array of numbers"),
        ("seed=3",): ({**content, "model_fields": {"opt": [1]}}, "unknown model field 'opt'"),
        ("seed=4",): ({**content, "robot": "pand"}, "unknown robot 'pand'. Did you mean 'panda'?"),
        ("seed=5",): ({**content, "robot": 3}, "not a divergence dump of the simulator"),
        ("seed=6",): ({**content, "robot": "my_arm.xml"}, "a divergence of a custom robot, my_arm.xml: name its file"),
        ("seed=7",): ({**content, "task": "my_task"}, "name its file: task=my_task.py"),
    }
    for args, (new_content, sentence) in mistakes.items():
        path.write_text(json.dumps(new_content))
        capsys.readouterr()
        assert main(["play", f"replay={path}", *args, f"out={tmp_path / 'run'}"]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task_name", ["evil.py", "{folder}/evil.py", "./evil.py", "lift_cube.py"])
def test_a_divergence_file_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], task_name: str
) -> None:
    """A divergence file is data that users exchange: a Python file that it names is not run."""
    path, _ = make_divergence(tmp_path / "divergences")
    monkeypatch.chdir(path.parent)
    for name in ("evil.py", "lift_cube.py"):
        Path(name).write_text("from pathlib import Path\nPath('PWNED').touch()\n")
    path.write_text(json.dumps({**json.loads(path.read_text()), "task": task_name.format(folder=path.parent)}))
    assert main(["play", f"replay={path}", f"out={tmp_path / 'run'}"]) == 2
    assert "name its file: task=my_task.py" in capsys.readouterr().err
    assert not Path("PWNED").exists()


@pytest.mark.usefixtures("restore_task_registry")
def test_a_divergence_of_a_custom_task_needs_its_file(tmp_path: Path) -> None:
    source = Path(inspect.getfile(type(find_task("lift_cube")))).read_text()
    task_file = tmp_path / "my_task.py"
    task_file.write_text(source.replace('name = "lift_cube"', 'name = "my_lift_cube"'))
    path, _ = make_divergence(tmp_path / "divergences")
    path.write_text(json.dumps({**json.loads(path.read_text()), "task": "my_lift_cube"}))
    assert main(["play", f"replay={path}", f"task={task_file}", f"out={tmp_path / 'run'}", "env.image_size=64"]) == 0
    assert play_metrics(tmp_path / "run")["task"] == "my_lift_cube"


def test_errors_are_one_sentence_and_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_policy(tmp_path / "other" / "policy", GaussianPolicy(PolicySpec(obs_dim=3, action_dim=4)))
    mistakes = {
        (
            "task=lift_cube",
            "policy=exprt",
        ): "unknown policy 'exprt'. Did you mean 'expert'? Available: expert, person, planner, random, or",
        ("task=lift_cube", f"policy={tmp_path}"): "no policy found in",
        ("task=lift_cube", f"policy={tmp_path / 'other'}"): "takes observations of shape [3], lift_cube gives [29]",
        ("task=lift_cub",): "unknown task 'lift_cub'. Did you mean 'lift_cube'?",
        ("task=lift_cube", "env.image_size=65"): "env.image_size must be even, for the video, got 65",
        ("policy=expert",): "play needs task=..., a task, or replay=..., a file in env.divergence_dump_dir",
    }
    for args, sentence in mistakes.items():
        assert main(["play", *args, f"out={tmp_path / 'run'}"]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1
        assert not (tmp_path / "run").exists()


def test_the_contact_sheet_shows_every_task_from_every_view(tmp_path: Path) -> None:
    path = tmp_path / "made" / "tasks.png"
    assert main(["tasks", f"contact_sheet={path}"]) == 0
    sheet = np.asarray(Image.open(path))
    assert sheet.shape == (
        LINE_HEIGHT_PX + len(task_names()) * (LINE_HEIGHT_PX + 256 + GAP_PX),
        GAP_PX + len(VIEW_NAMES) * (256 + GAP_PX),
        3,
    )
    for number, task in enumerate(task_names()):
        envs = TabletopVecEnv(task, 1, image_size=256)
        envs.reset(seed=0)
        top = LINE_HEIGHT_PX + number * (LINE_HEIGHT_PX + 256 + GAP_PX)
        assert sheet[top : top + LINE_HEIGHT_PX].min() < 100, "the caption"
        for column, image in enumerate(envs.render_views()[0]):
            left = GAP_PX + column * (256 + GAP_PX)
            np.testing.assert_array_equal(sheet[top + LINE_HEIGHT_PX :, left:][:256, :256], image)
        envs.close()


def test_captions_are_drawn() -> None:
    views = {"front": np.zeros((32, 200, 3), np.uint8)}
    first, second = (
        draw_contact_sheet([ContactSheetRow(caption=caption, views=views)]) for caption in ("lift it", "push it")
    )
    assert first != second
    assert first == draw_contact_sheet([ContactSheetRow(caption="lift it", views=views)])


def test_a_contact_sheet_is_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", f"contact_sheet={tmp_path / 'tasks.jpg'}"]) == 2
    assert "contact_sheet must be a file that ends in .png" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
