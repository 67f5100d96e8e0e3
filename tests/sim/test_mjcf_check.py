"""Invalid MuJoCo files give one sentence and do not affect the process."""

import pytest

from embodied_sim import mjcf_check
from embodied_sim.mjcf_check import check_mjcf
from embodied_sim.sim_errors import SimError

VALID_MJCF = '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco><worldbody>", "XML"),
        ("not a model", "XML"),
        (VALID_MJCF.replace("<worldbody>", '<option timestep="0.5"/><worldbody>', 1), r"the time step is 0\.5 s"),
        (VALID_MJCF.replace("<geom", "<geom" + ' size=".1"/><geom' * 2000), "ngeom is 2001, at most 2000"),
        (VALID_MJCF.replace('size=".1"', 'type="mesh" mesh="none"'), "mesh"),
    ],
)
def test_invalid_file_gives_one_sentence(tmp_path, text, message):
    path = tmp_path / "arm.xml"
    path.write_text(text)
    with pytest.raises(SimError, match=rf"arm\.xml: .*{message}"):
        check_mjcf(path)


def test_valid_file_passes_and_missing_file_is_an_error(tmp_path):
    (tmp_path / "arm.xml").write_text(VALID_MJCF)
    check_mjcf(tmp_path / "arm.xml")
    with pytest.raises(SimError, match=r"gone\.xml: there is no such file"):
        check_mjcf(tmp_path / "gone.xml")


def test_file_beyond_time_or_memory_limit_is_rejected(tmp_path, monkeypatch):
    (tmp_path / "arm.xml").write_text(VALID_MJCF)
    monkeypatch.setattr(mjcf_check, "MAX_MEMORY_BYTES", 64 << 20)
    with pytest.raises(SimError, match=r"arm\.xml: compiling it ended in a crash, or needed more"):
        check_mjcf(tmp_path / "arm.xml")
    monkeypatch.setattr(mjcf_check, "MAX_MEMORY_BYTES", 4 << 30)
    monkeypatch.setattr(mjcf_check, "COMPILE_TIMEOUT_S", 0.01)
    with pytest.raises(SimError, match=r"arm\.xml: it did not compile within 0.01 s"):
        check_mjcf(tmp_path / "arm.xml")
