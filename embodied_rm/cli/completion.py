"""Tab completion: the command is completed here, its keys and values by Hydra."""

from collections.abc import Sequence
from typing import cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.completion_plugin import CompletionPlugin

from embodied_rm.config_files import command_display_name, command_names, join_command_words
from embodied_rm.config_schema import open_configs
from embodied_rm.environment import require_variable
from embodied_rm.errors import UserError, lookup

COMPLETED_FLAGS = ("--help", "--multirun")


def complete(arguments: Sequence[str]) -> None:
    """Run `--shell-completion`: `install=SHELL` and `uninstall=SHELL` print the script of the shell.

    `query=SHELL` prints the words that complete the environment variable COMP_LINE.
    """
    action, _, shell = (arguments[0] if arguments else "").partition("=")
    if action not in ("install", "uninstall", "query"):
        raise UserError("--shell-completion needs install=SHELL or uninstall=SHELL, SHELL being bash, zsh or fish")
    with open_configs():
        plugins = completion_plugins(GlobalHydra.instance().config_loader())
        plugin = lookup(plugins, shell, "shell")
        match action:
            case "install":
                plugin.install()
            case "uninstall":
                plugin.uninstall()
            case _:
                print("\n".join(complete_words(plugin, require_variable("COMP_LINE"))))


def completion_plugins(loader: ConfigLoader) -> dict[str, CompletionPlugin]:
    """Return Hydra's completion plugins by shell name."""
    plugin_types = cast(list[type[CompletionPlugin]], Plugins.instance().discover(CompletionPlugin))
    return {plugin_type.provides(): plugin_type(loader) for plugin_type in plugin_types}


def complete_words(plugin: CompletionPlugin, line: str) -> list[str]:
    """Return the words that can complete a command line: commands, flags, keys, groups or choices."""
    rest = CompletionPlugin.strip_python_or_app_name(line)
    command, space, tail = " ".join(join_command_words(rest.split(" "))).partition(" ")
    if not space or command not in command_names():
        candidates = [name.split() for name in map(command_display_name, command_names()) if name.startswith(rest)]
        return list(dict.fromkeys(parts[rest.count(" ")] for parts in candidates))
    # The YAML files hold all keys and defaults. An empty schema avoids importing torch and mujoco.
    for name in command_names():
        ConfigStore.instance().store(f"{name}_schema", {"out": None, "resume": False} if name == command else {})
    current = "" if tail.endswith(" ") else tail.split(" ")[-1]
    if current.startswith("-"):
        return [flag for flag in COMPLETED_FLAGS if flag.startswith(current)]
    key, is_value, typed = current.partition("=")
    if is_value and (choices := value_choices(key)):
        *finished, last = typed.removeprefix("[").split(",")
        start = current[: len(current) - len(last)]
        return [start + choice for choice in choices if choice.startswith(last) and choice not in finished]
    return [word for word in plugin._query(command, tail) if not word.startswith("hydra")]


def value_choices(key: str) -> Sequence[str]:
    """Return the values of a key that takes one of few names, or a list of them; empty for any other key."""
    match key.rpartition(".")[-1]:
        case "rule" | "rules":
            from embodied_rm.rewards.rules import RULES

            return sorted(RULES)
        case "fusion":
            from embodied_rm.models.potential_fusion import FUSION_KINDS

            return FUSION_KINDS
        case "label_schemes":
            from embodied_rm.labels.schemes import LABEL_SCHEMES

            return sorted(LABEL_SCHEMES)
        case "task" | "tasks":
            from embodied_sim.registry import task_names

            return task_names()
        case _:
            return ()
