"""Hydra's tab completion for a program with commands: the first word completes here, the rest in Hydra."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.completion_plugin import CompletionPlugin

from embodied_rm.cli.configs import command_names, config_dir, joined, spoken
from embodied_rm.errors import UserError, lookup

FLAGS = ("--help", "--multirun")


def complete(arguments: Sequence[str]) -> None:
    """`install=SHELL` and `uninstall=SHELL` write the shell's script, `query=SHELL` the words for COMP_LINE."""
    verb, _, shell = (arguments[0] if arguments else "").partition("=")
    if verb not in ("install", "uninstall", "query"):
        raise UserError("--shell-completion needs install=SHELL or uninstall=SHELL, SHELL being bash, zsh or fish")
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        completer = completers(GlobalHydra.instance().config_loader())
        chosen = lookup(completer, shell, "shell")
        match verb:
            case "install":
                chosen.install()
            case "uninstall":
                chosen.uninstall()
            case _:
                print("\n".join(words(chosen, os.environ["COMP_LINE"])))


def completers(loader: ConfigLoader) -> dict[str, CompletionPlugin]:
    """Hydra's completion plugins by the name of their shell."""
    kinds = cast(list[type[CompletionPlugin]], Plugins.instance().discover(CompletionPlugin))
    return {kind.provides(): kind(loader) for kind in kinds}


def words(completer: CompletionPlugin, line: str) -> list[str]:
    """What may follow a half-written command line: a command, a flag, a key, a group or a choice."""
    rest = CompletionPlugin.strip_python_or_app_name(line)
    command, space, tail = " ".join(joined(rest.split(" "))).partition(" ")
    if not space or command not in command_names():
        begun = [name.split() for name in map(spoken, command_names()) if name.startswith(rest)]
        return list(dict.fromkeys(parts[rest.count(" ")] for parts in begun))
    # Keys and defaults are all in the YAML: an empty schema keeps torch and mujoco out of a key press.
    for name in command_names():
        ConfigStore.instance().store(f"{name}_schema", {"out": None, "resume": False} if name == command else {})
    current = "" if tail.endswith(" ") else tail.split(" ")[-1]
    if current.startswith("-"):
        return [flag for flag in FLAGS if flag.startswith(current)]
    return [word for word in completer._query(command, tail) if not word.startswith("hydra")]
