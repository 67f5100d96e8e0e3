"""A file from somebody else: what is wrong is said in one sentence, and nothing of ours goes down with it."""

import pytest

from embodied_sim import mjcf_check
from embodied_sim.mjcf_check import check_mjcf
from embodied_sim.sim_errors import SimError

GOOD = '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco><worldbody>", "XML"),
        ("not a model", "XML"),
        (GOOD.replace("<worldbody>", '<option timestep="0.5"/><worldbody>', 1), r"the time step is 0\.5 s"),
        (GOOD.replace("<geom", "<geom" + ' size=".1"/><geom' * 2000), "ngeom is 2001, at most 2000"),
        (GOOD.replace('size=".1"', 'type="mesh" mesh="none"'), "mesh"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, text, message):
    path = tmp_path / "arm.xml"
    path.write_text(text)
    with pytest.raises(SimError, match=rf"arm\.xml: .*{message}"):
        check_mjcf(path)


def test_a_good_file_passes_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "arm.xml").write_text(GOOD)
    check_mjcf(tmp_path / "arm.xml")
    with pytest.raises(SimError, match=r"gone\.xml: there is no such file"):
        check_mjcf(tmp_path / "gone.xml")


def test_a_file_that_takes_too_long_or_too_much_is_refused(tmp_path, monkeypatch):
    (tmp_path / "arm.xml").write_text(GOOD)
    monkeypatch.setattr(mjcf_check, "BYTES", 64 << 20)
    with pytest.raises(SimError, match=r"arm\.xml: compiling it ended in a crash, or needed more"):
        check_mjcf(tmp_path / "arm.xml")
    monkeypatch.setattr(mjcf_check, "BYTES", 4 << 30)
    monkeypatch.setattr(mjcf_check, "SECONDS", 0.01)
    with pytest.raises(SimError, match=r"arm\.xml: it did not compile within 0.01 s"):
        check_mjcf(tmp_path / "arm.xml")
