"""Models of a hub served on this machine: a revision and a SHA-256 select exactly one, and nothing else is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hub_server import HubServer, Repository, hub_environment, serve_hub, use_hub
from sprites import episode

import embodied_rm as erm
from embodied_rm.checkpoint_io import MANIFEST_NAME, read_manifest
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.progress_net import NetConfig, ProgressNet

REPO_ID = "people/lifting"
NET_CONFIG = NetConfig(views=("top", "side"), encoder=small_encoder_config("stride_tower_tiny", (32, 32)))


def make_model(seed: int) -> erm.ProgressRewardModel:
    torch.manual_seed(seed)
    return erm.ProgressRewardModel(ProgressNet(NET_CONFIG).eval(), {"episodes": seed})


def weights(model: object) -> dict[str, torch.Tensor]:
    assert isinstance(model, erm.ProgressRewardModel)
    return model.net.state_dict()


def same_weights(first: object, second: object) -> bool:
    pairs = zip(weights(first).values(), weights(second).values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve_hub() as server:
        use_hub(monkeypatch, server.url, tmp_path / "home")
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint folder, with files beside the checkpoint."""
    make_model(1).save(tmp_path / "checkpoint")
    for name in ("notes.txt", "optimizer.bin", ".env", "events.safetensors", "config.json"):
        (tmp_path / "checkpoint" / name).write_text("not of the checkpoint")
    return tmp_path / "checkpoint"


@pytest.fixture
def repository(hub: HubServer, folder: Path) -> Repository:
    return hub.add("models", REPO_ID, folder)


def sha256(folder: Path) -> str:
    return read_manifest(folder)["manifest_sha256"]


def test_only_the_files_of_the_manifest_are_downloaded_and_once(
    hub: HubServer, repository: Repository, folder: Path
) -> None:
    for _ in range(2):
        assert same_weights(erm.load_reward_model(f"hf:{REPO_ID}"), make_model(1))
    (tensors,) = folder.glob("tensors-*")
    assert hub.downloads == {MANIFEST_NAME: 1, tensors.name: 1}


def test_a_branch_a_tag_and_a_commit_select_a_revision(repository: Repository, folder: Path, tmp_path: Path) -> None:
    first = repository.references["main"]
    repository.references["v1.0"] = first
    make_model(2).save(tmp_path / "second")
    repository.commit({path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()})
    for revision in ("v1.0", first):
        assert same_weights(erm.load_reward_model(f"hf:{REPO_ID}@{revision}"), make_model(1))
    for name in (f"hf:{REPO_ID}", f"hf:{REPO_ID}@main", f"hf:{REPO_ID}@main#sha256={sha256(tmp_path / 'second')}"):
        assert same_weights(erm.load_reward_model(name), make_model(2))


def test_a_manifest_with_another_hash_is_refused_before_the_weights_are_downloaded(
    hub: HubServer, repository: Repository, folder: Path
) -> None:
    required = "0" * 64
    with pytest.raises(CheckpointError, match=f"the manifest on the hub has the SHA-256 {sha256(folder)}"):
        erm.load_reward_model(f"hf:{REPO_ID}@main#sha256={required}")
    assert set(hub.downloads) == {MANIFEST_NAME}
    name = f"hf:{REPO_ID}#sha256={sha256(folder)}"
    assert same_weights(erm.load_reward_model(name), make_model(1))


@pytest.mark.parametrize(("name", "message"), [("tensors", "does not match"), (MANIFEST_NAME, "not JSON")])
def test_a_file_that_was_changed_on_the_hub_is_refused(
    name: str, message: str, repository: Repository, folder: Path
) -> None:
    files = dict(repository.commits[repository.references["main"]])
    (changed,) = (key for key in files if key.startswith(name))
    files[changed] = files[changed][:-2] + bytes([files[changed][-2] ^ 1]) + files[changed][-1:]
    repository.commit(files)
    with pytest.raises(CheckpointError, match=message):
        erm.load_reward_model(f"hf:{REPO_ID}#sha256={sha256(folder)}")


@pytest.mark.parametrize(
    "name",
    [
        "hf:lifting",
        "hf:../lifting",
        "hf:people/..",
        "hf:people/lifting/x",
        "hf:people/lifting@",
        "hf:people/lifting@../x",
        "hf:people/lifting@main#sha256=12ab",
        f"hf:people/lifting#{'0' * 64}",
    ],
)
def test_another_form_of_name_is_rejected_without_a_request(name: str) -> None:
    with pytest.raises(UserError, match="a model of the hub is named hf:owner/name"):
        erm.load_reward_model(name)


def test_an_error_names_what_the_hub_lacks(hub: HubServer, repository: Repository, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"hf:people/none: cannot be downloaded: the hub at \S+ has no such repo"):
        erm.load_reward_model("hf:people/none")
    with pytest.raises(CheckpointError, match="the repository has no such branch, tag or commit"):
        erm.load_reward_model(f"hf:{REPO_ID}@v9")
    repository.commit({"README.md": b"# nothing"})
    with pytest.raises(CheckpointError, match=f"{REPO_ID}: the repository has no manifest.json"):
        erm.load_reward_model(f"hf:{REPO_ID}")


def test_without_an_answer_of_the_hub_the_copy_in_the_cache_is_used(
    hub: HubServer, repository: Repository, folder: Path
) -> None:
    name = f"hf:{REPO_ID}@{repository.references['main']}#sha256={sha256(folder)}"
    erm.load_reward_model(name)
    hub.shutdown()
    hub.server_close()
    assert same_weights(erm.load_reward_model(name), make_model(1))
    with pytest.raises(CheckpointError, match="does not answer, and the cache has no copy"):
        erm.load_reward_model("hf:people/other")


def run(hub: HubServer, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `embodied-rm` with that hub."""
    command = [sys.executable, "-m", "embodied_rm", *words]
    env = os.environ | hub_environment(hub.url, home)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, cwd=home.parent)


def test_every_command_takes_a_model_of_the_hub(
    hub: HubServer, repository: Repository, folder: Path, tmp_path: Path
) -> None:
    with DatasetWriter(tmp_path / "dataset") as writer:
        writer.add(episode(0, length=9))
    words = ("score", "data=dataset", "videos=false", "plots=false", "out=scores")
    name = f"hf:{REPO_ID}@main#sha256={sha256(folder)}"
    result = run(hub, tmp_path / "home", *words, f"checkpoint={name}")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "scores" / "progress.parquet").is_file()
    result = run(hub, tmp_path / "home", *words[:-1], f"checkpoint=hf:{REPO_ID}#sha256={'0' * 64}")
    assert result.returncode == 2 and "so nothing is loaded" in result.stderr.splitlines()[-1]
