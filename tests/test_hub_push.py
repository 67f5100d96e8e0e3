"""A model is pushed to a hub served on this machine, and pulled again: byte for byte, by revision and by SHA-256."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hub_server import HubServer, Repository, use_hub
from huggingface_hub import ModelCard
from sprites import episode
from test_hub_checkpoint import REPO_ID, folder, hub, make_model, run, same_weights

import embodied_rm as erm
from embodied_rm.api.hub_upload import push_folder
from embodied_rm.checkpoint_io import MANIFEST_NAME, list_files, read_checkpoint, read_manifest, save_files
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.hub_checkpoint import download_checkpoint
from embodied_rm.models.reward_model import InputSpec

__all__ = ["folder", "hub"]  # fixtures


def files_of(hub: HubServer, revision: str = "main") -> dict[str, bytes]:
    repository: Repository = hub.repositories["models", REPO_ID]
    return repository.commits[repository.find(revision)]


def test_a_model_is_pulled_as_it_was_pushed(hub: HubServer, folder: Path) -> None:
    pushed = push_folder(folder, None, InputSpec(), REPO_ID)
    assert pushed.manifest_sha256 == read_manifest(folder)["manifest_sha256"]
    assert pushed.url == f"{hub.url}/{REPO_ID}/tree/{pushed.revision}"
    pulled = download_checkpoint(str(pushed))
    assert read_checkpoint(pulled) == read_checkpoint(folder)
    assert same_weights(erm.load_reward_model(str(pushed)), make_model(1))


def test_only_the_files_of_the_checkpoint_and_a_card_are_uploaded(hub: HubServer, folder: Path) -> None:
    push_folder(folder, None, InputSpec(), REPO_ID)
    own = {MANIFEST_NAME, *list_files(folder)}
    assert set(files_of(hub)) == {".gitattributes", "README.md", *own}
    assert len(own) == 2 and set(hub.uploads.values()) == {(folder / name).read_bytes() for name in list_files(folder)}


def test_a_manifest_that_lists_a_file_of_another_folder_is_refused(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (tmp_path / "sub").mkdir()
    save_files(tmp_path / "sub", {"../secret": b"key"}, {"architecture": "progress_net", "facts": {}})
    with pytest.raises(CheckpointError, match=r"lists '\.\./secret', which is not the name of a file beside it"):
        push_folder(tmp_path / "sub", None, InputSpec(), REPO_ID)
    assert not hub.repositories


def test_a_damaged_checkpoint_is_not_pushed(hub: HubServer, folder: Path) -> None:
    (tensors,) = folder.glob("tensors-*")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=f"{tensors.name}: the content does not match"):
        push_folder(folder, None, InputSpec(), REPO_ID)
    assert not hub.repositories


def test_after_a_second_push_a_pinned_revision_is_still_the_first(hub: HubServer) -> None:
    first = make_model(1).push_to_hub(REPO_ID)
    second = make_model(2).push_to_hub(REPO_ID)
    assert same_weights(erm.load_reward_model(str(first)), make_model(1))
    assert same_weights(erm.load_reward_model(f"hf:{REPO_ID}@{first.revision}"), make_model(1))
    for name in (f"hf:{REPO_ID}", str(second), f"hf:{REPO_ID}@main#sha256={second.manifest_sha256}"):
        assert same_weights(erm.load_reward_model(name), make_model(2))
    with pytest.raises(CheckpointError, match="so nothing is loaded"):
        erm.load_reward_model(f"hf:{REPO_ID}@{second.revision}#sha256={first.manifest_sha256}")
    # The weights of the first version are not in the second one; what others have put there is.
    assert len([name for name in files_of(hub) if name.startswith("tensors-")]) == 1
    assert ".gitattributes" in files_of(hub)


def test_a_branch_is_created_and_main_stays(hub: HubServer) -> None:
    make_model(1).push_to_hub(REPO_ID, private=True)
    pushed = make_model(2).push_to_hub(REPO_ID, revision="v2")
    assert hub.repositories["models", REPO_ID].private
    assert same_weights(erm.load_reward_model(f"hf:{REPO_ID}@main"), make_model(1))
    assert same_weights(erm.load_reward_model(f"hf:{REPO_ID}@v2#sha256={pushed.manifest_sha256}"), make_model(2))


def test_a_file_that_was_changed_after_the_push_is_refused(hub: HubServer, folder: Path) -> None:
    pushed = push_folder(folder, None, InputSpec(), REPO_ID)
    (name,) = list_files(folder)
    files_of(hub)[name] = files_of(hub)[name][:-1] + b"\0"
    with pytest.raises(CheckpointError, match=f"{name}: the content does not match"):
        erm.load_reward_model(str(pushed))


def test_a_model_without_a_card_gets_one_that_says_how_to_load_it(hub: HubServer) -> None:
    pushed = make_model(1).push_to_hub(REPO_ID)
    card = ModelCard(files_of(hub)["README.md"].decode())
    assert card.data.library_name == "embodied_rm" and card.data.pipeline_tag == "robotics"
    assert card.data.tags == ["reward-model", "robotics", "progress_net"]
    assert card.data.license is None and card.data.eval_results is None
    assert "| views | `top`, `side` |" in card.text and "32 x 32 pixels" in card.text
    name = f"hf:{REPO_ID}@main#sha256={pushed.manifest_sha256}"
    assert f'erm.load_reward_model("{name}")' in card.text
    assert same_weights(erm.load_reward_model(name), make_model(1))


def test_a_card_is_kept_from_the_folder_to_the_hub_and_back(hub: HubServer, folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    erm.load_reward_model(folder).push_to_hub(REPO_ID)
    assert files_of(hub)["README.md"] == (folder / "README.md").read_bytes()
    assert erm.load_reward_model(f"hf:{REPO_ID}").card == "---\nlicense: mit\n---\n# Mine\n"
    (folder / "README.md").write_text("# Mine, without a head\n")
    erm.load_reward_model(folder).push_to_hub(REPO_ID)
    card = ModelCard(files_of(hub)["README.md"].decode())
    assert card.data.library_name == "embodied_rm" and card.text.strip() == "# Mine, without a head"


def test_a_model_of_a_demonstration_is_pushed_and_an_int8_one_is_not(hub: HubServer) -> None:
    model = erm.from_demonstration(demonstration())
    pushed = model.push_to_hub(REPO_ID)
    pulled = erm.load_reward_model(str(pushed))
    assert isinstance(pulled, erm.DemonstrationRewardModel)
    frames = demonstration().views["camera"]
    assert abs(pulled.score(frames).progress - model.score(frames).progress).max() < 0.01
    quantized = erm.from_demonstration(demonstration(), precision="int8")
    with pytest.raises(UserError, match="a model of precision=int8 cannot be saved"):
        quantized.push_to_hub(REPO_ID)


def demonstration() -> erm.Episode:
    from api.test_demonstration_reward import STEPS, np, paint

    frames = np.stack([paint(x) for x in np.linspace(0, 1, STEPS)])
    return erm.Episode(name="demonstration", views={"camera": frames}, instruction="push it", fps=10.0)


def test_an_upload_that_the_hub_rejects_is_one_sentence(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="a model of the hub is named hf:owner/name"):
        make_model(1).push_to_hub("lifting")
    monkeypatch.setenv("HF_TOKEN", "hf_another_token")
    with pytest.raises(UserError, match=f"{REPO_ID}: cannot be pushed: the hub at .* set HF_TOKEN, or run `hf auth"):
        make_model(1).push_to_hub(REPO_ID)
    use_hub(monkeypatch, hub.url, Path("unused"))
    card = "---\n- a list\n---\n"
    model = erm.ProgressRewardModel(make_model(1).net, card=card)
    with pytest.raises(UserError, match=r"cannot be pushed: Invalid metadata in README.md. - no front matter"):
        model.push_to_hub(REPO_ID)
    hub.shutdown()
    hub.server_close()
    with pytest.raises(UserError, match=f"{REPO_ID}: cannot be pushed: the hub at .* does not answer"):
        make_model(1).push_to_hub(REPO_ID)


def test_the_command_prints_the_name_that_loads_the_model(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    words = ("push", f"checkpoint={folder}", f"repo_id={REPO_ID}", "revision=v2", "private=true")
    result = run(hub, tmp_path / "home", *words)
    assert result.returncode == 0, result.stderr
    url, printed = result.stdout.splitlines()
    (name,) = shlex.split(printed)
    assert url.startswith(f"{hub.url}/{REPO_ID}/tree/") and hub.repositories["models", REPO_ID].private
    assert same_weights(erm.load_reward_model(name.removeprefix("checkpoint=")), make_model(1))


def test_data_and_model_of_the_hub_train_a_model_whose_card_names_the_data(hub: HubServer, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "dataset") as writer:
        for number in range(2):
            writer.add(episode(number, length=9))
    hub.add("datasets", "people/carrying", tmp_path / "dataset")
    preferences = f"preference_model={make_model(1).push_to_hub(REPO_ID)}"
    small = ("steps=1", "batch_size=2", "image_size=[32,32]", "encoder=stride_tower_tiny")
    small += ("label_schemes=[preferences]", "fusion=forward", preferences)
    result = run(hub, tmp_path / "home", "train", "data=hub:people/carrying@main", *small, "out=run")
    assert result.returncode == 0, result.stderr
    model = erm.load_reward_model(tmp_path / "run")
    model.push_to_hub(REPO_ID)
    assert ModelCard(files_of(hub)["README.md"].decode()).data.datasets == ["people/carrying"]


def test_an_export_is_pushed_with_its_graphs(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    result = run(hub, tmp_path / "home", "export", f"checkpoint={folder}", "out=export")
    assert result.returncode == 0, result.stderr
    exported = tmp_path / "export" / "checkpoint"
    push_folder(exported, None, InputSpec(), REPO_ID)
    graphs = [name for name in list_files(exported) if name.endswith(".onnx")]
    assert graphs and set(graphs) <= set(files_of(hub))
    pulled = download_checkpoint(f"hf:{REPO_ID}")
    assert read_checkpoint(pulled) == read_checkpoint(exported)
