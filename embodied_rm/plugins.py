"""Extension points: packages of others register dataset readers, reward rules, label schemes and encoders.

A package declares an entry point per kind in its `pyproject.toml`, and decorates what it adds:

    [project.entry-points."embodied_rm.reward_rules"]
    mine = "my_package.rules"

The modules are imported when a name of that kind is looked up for the first time.
"""

from functools import cache
from importlib.metadata import entry_points

from embodied_rm.errors import UserError

GROUPS = (
    "embodied_rm.dataset_readers",
    "embodied_rm.encoders",
    "embodied_rm.label_schemes",
    "embodied_rm.reward_rules",
)
"""Entry-point groups. Tasks of the simulator have one of their own, `embodied_sim.tasks`."""


@cache
def load_plugins(group: str) -> tuple[str, ...]:
    """Import every module that installed packages declare in a group of `GROUPS`, once; return the entry points' names.

    Raises `UserError`, naming the entry point that cannot be imported, and why.
    """
    assert group in GROUPS, group
    loaded = []
    for entry_point in sorted(entry_points(group=group), key=lambda entry_point: entry_point.name):
        try:
            entry_point.load()
        except Exception as error:
            raise UserError(
                f"the plugin {entry_point.name} = {entry_point.value} of {group} cannot be imported "
                f"({type(error).__name__}: {error}): mend or uninstall its package"
            ) from error
        loaded.append(entry_point.name)
    return tuple(loaded)
