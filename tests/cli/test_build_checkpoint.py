"""The bundled model replaces the previous one."""

from pathlib import Path

from embodied_rm.experiments.release_checkpoint import install_checkpoint


def test_a_new_model_replaces_only_the_previous_weights(tmp_path: Path) -> None:
    model, install_dir = tmp_path / "model", tmp_path / "into"
    for folder, files in (
        (model, ("manifest.json", "tensors-2.safetensors")),
        (install_dir, ("tensors-1.safetensors",)),
    ):
        folder.mkdir()
        for name in files:
            (folder / name).write_text(folder.name)
    (install_dir / "mine.safetensors").write_text("mine")
    for _ in range(2):
        install_checkpoint(model, install_dir)
        assert {path.name for path in install_dir.iterdir()} == {
            "manifest.json",
            "tensors-2.safetensors",
            "mine.safetensors",
        }
