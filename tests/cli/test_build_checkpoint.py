"""The model in the box takes the place of the one before."""

from pathlib import Path

from embodied_rm.experiments.release_checkpoint import install_checkpoint


def test_a_new_model_replaces_the_weights_of_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    model, into = tmp_path / "model", tmp_path / "into"
    for folder, files in ((model, ("manifest.json", "tensors-2.safetensors")), (into, ("tensors-1.safetensors",))):
        folder.mkdir()
        for name in files:
            (folder / name).write_text(folder.name)
    (into / "mine.safetensors").write_text("mine")
    for _ in range(2):
        install_checkpoint(model, into)
        assert {path.name for path in into.iterdir()} == {"manifest.json", "tensors-2.safetensors", "mine.safetensors"}
