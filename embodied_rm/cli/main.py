"""The console script: select the command, compose its config, open its run folder, report errors in one line.

Exit codes: 0 done, 1 internal error (with traceback), 2 invalid input, 3 failed strict audit or inspection,
4 error of a reward service, 5 refused by the operating system (no space, no permission), 130 interrupted,
143 terminated.
"""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from embodied_rm.cli import PROCESS_START_S
from embodied_rm.cli import help as pages
from embodied_rm.cli.commands import COMMAND_MODULES
from embodied_rm.cli.console import ConsoleReporter, format_duration, make_console, print_text
from embodied_rm.cli.os_errors import RefusalError, describe_refusal
from embodied_rm.cli.terminal_text import escape_controls
from embodied_rm.client.client_errors import ServiceError
from embodied_rm.command import Command
from embodied_rm.config_files import command_display_name, command_names, join_command_words, plugin_commands
from embodied_rm.environment import checked_environment, rank_and_world_size
from embodied_rm.errors import CheckFailedError, UserError, unknown_name_message
from embodied_rm.interrupts import Terminated, raise_when_terminated
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.run_lock import lock_folder
from embodied_rm.serve.thread_affinity import bind_threads_to_cores

RESUME_HINT = "; to resume, repeat the command line with resume=true"
NO_RESUME_HINT = "; it cannot be continued: with resume=true, it begins anew"
EXTRAS = {
    **dict.fromkeys(("grpc", "grpc_health", "msgspec", "prometheus_client", "starlette", "uvicorn"), "serve"),
    **{name: name for name in ("onnx", "ray", "rerun", "transformers", "wandb")},
    "mujoco": "sim",
}
"""Optional package -> the extra that installs it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Physics, rendering and networks share the cores. Long spinning of waiting OpenMP threads made scoring 5 to 20
    # times slower on a busy machine; no spinning made it 1.5 times slower on an idle one. Read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    if words[:1] == ["serve"]:
        bind_threads_to_cores(os.environ)
    raise_when_terminated()
    try:
        return dispatch(words)
    except Terminated as interrupt:
        _print_error(f"terminated{interrupt}")
        return 143
    except KeyboardInterrupt as interrupt:
        _print_error(f"interrupted{interrupt}")
        return 130
    except SystemExit as error:  # no command of this package raises it
        _print_error(f"error: a task file or a plugin ended the program with SystemExit({error.code!r})")
        return 2
    except RefusalError as error:
        _print_error(f"error: {error}")
        return 5
    except BrokenPipeError:  # the reader of the pipe has exited (`| head`)
        discard_output()
        return 141
    except OSError as error:
        if (sentence := describe_refusal(error, None)) is None:
            raise
        if error.filename is None:  # it refused what is printed
            discard_output()
        _print_error(f"error: {sentence}")
        return 5
    except CheckFailedError as error:
        _print_error(str(error))
        return 3
    except ValueError as error:
        if not is_user_error(error):
            raise
        _print_error(f"error: {error}")
        return 2
    except ServiceError as error:
        _print_error(f"error: {error}")
        return 4
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        _print_error(f"error: this needs {package}: pip install 'embodied-rm[{EXTRAS[package]}]'")
        return 2


def dispatch(words: Sequence[str]) -> int:
    """Run help, completion or a command. Raises `UserError` for an unknown command or flag."""
    match join_command_words(words):
        case [] | ["-h" | "--help"] | ["help"]:
            pages.show_overview(make_console())
        case ["-h" | "--help" | "help", *rest]:
            return dispatch([*rest, "--help"])
        case [group, *_] if commands := commands_in_group(group):
            raise UserError(f"embodied-rm {group} is a group of commands: {', '.join(commands)}")
        case ["--version" | "-V" | "version", *_]:
            print(version("embodied-rm"), flush=True)
        case ["-sc" | "--shell-completion", *rest]:
            from embodied_rm.cli.completion import complete

            complete(rest)
        case [name, *_] if name not in command_names():
            raise UserError(
                unknown_name_message(name, [command_display_name(command) for command in command_names()], "command")
            )
        case [name, *rest] if "-h" in rest or "--help" in rest:
            pages.show_command(make_console(), name)
        case [name, *rest]:
            with checked_environment():
                run_command(name, rest)
    return 0


def commands_in_group(word: str) -> list[str]:
    """Return the commands of two words that begin with a word that is no command, such as `bench`."""
    names = list(map(command_display_name, command_names()))
    return [] if word in names else [name for name in names if name.startswith(f"{word} ")]


def run_command(name: str, arguments: Sequence[str]) -> None:
    """Compose and run a command; with `-m` once per combination of swept values."""
    from embodied_rm.cli import compose

    flags = [word for word in arguments if word.startswith("-")]
    for flag in flags:
        if flag not in ("-m", "--multirun"):
            raise UserError(
                unknown_name_message(
                    flag, ["--help", "--multirun", "-m"], f"flag of embodied-rm {command_display_name(name)}"
                )
            )
    words = compose.name_data_path(name, [word for word in arguments if word not in flags])
    options, overrides = compose.split_run_options(compose.parse_overrides(words, multirun=bool(flags)))
    runs = compose.expand_sweep(compose.check_keys(name, overrides))
    compose.check_values(name, overrides)
    command = load_command(name)
    if not command.distributed and rank_and_world_size()[1] > 1:
        raise UserError(f"embodied-rm {command_display_name(name)} runs in one process: start it without torchrun")
    configs = [compose.compose_typed(name, run, command.schema) for run in runs]
    folder = options.out or Path("runs", name, datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))
    try:
        with ConsoleReporter() as reporter:
            for index, config in enumerate(configs):
                if flags:
                    reporter.log(f"run {index + 1} of {len(configs)}: {' '.join(runs[index])}")
                run_folder = folder / str(index) if flags else folder
                start_s = time.monotonic() if index else PROCESS_START_S
                if _run_once(name, command, config, run_folder, options.resume, reporter):
                    duration = format_duration(time.monotonic() - start_s)
                    reporter.log(f"{command_display_name(name)}: {duration}, written to {run_folder}")
    except KeyboardInterrupt as interrupt:
        raise type(interrupt)(resume_hint(command, folder)) from None
    except Exception as error:
        if isinstance(error, UserError) or (sentence := describe_refusal(error, folder)) is None:
            raise
        raise RefusalError(sentence + resume_hint(command, folder)) from error


def resume_hint(command: Command, folder: Path) -> str:
    """Return what follows the sentence about an interruption: how the run goes on, if it has begun."""
    has_begun = any("config.json" in names for *_, names in os.walk(folder))
    if not (command.writes_run_folder and has_begun):
        return ""
    return RESUME_HINT if command.resumable else NO_RESUME_HINT


def _run_once(name: str, command: Command, config: Any, folder: Path, resume: bool, reporter: ConsoleReporter) -> bool:
    """Run a command; return whether this process wrote a run into the folder."""
    if not command.writes_run_folder:
        command.main(config, RunFolder(folder), reporter)
        return False
    if rank_and_world_size()[0]:  # only rank 0 writes and reports
        if not RunFolder(folder).finished:
            command.main(config, RunFolder(folder), NullReporter())
        return False
    from embodied_rm.open_run import remove_empty_run

    is_made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    is_new = not any(folder.iterdir())
    try:
        with lock_folder(folder):
            return _write_run(name, command, config, folder, resume, reporter)
    except (ValueError, KeyboardInterrupt, BrokenPipeError) as error:
        if is_new and not (isinstance(error, ValueError) and not is_user_error(error)):
            remove_empty_run(RunFolder(folder), with_folder=is_made)
        raise


def _write_run(name: str, command: Command, config: Any, folder: Path, resume: bool, reporter: ConsoleReporter) -> bool:
    """Run a command in a folder whose lock is held; return False if the run was finished before."""
    from embodied_rm.open_run import is_unfinished, open_run

    if is_unfinished(folder) and resume and not command.resumable:
        reporter.log(f"embodied-rm {command_display_name(name)} cannot continue a run: it begins anew")
    ignored, resumable = command.resume_ignored_keys, command.resumable
    run = open_run(name, config, folder, resume=resume, ignored_keys=ignored, resumable=resumable)
    if run.finished:
        reporter.log(f"the run in {folder} is already finished")
        return False
    command.main(config, run, reporter)
    return True


def load_command(name: str) -> Command:
    """Import one command, a name of `command_names`.

    Commands are imported only here, so help, completion and most errors do not load torch or mujoco.
    """
    module = (COMMAND_MODULES | plugin_commands()).get(name, f"embodied_rm.cli.commands.{name}")
    command: Command = import_module(module).COMMAND
    return command


def is_user_error(error: ValueError) -> bool:
    """Whether an error is caused by the input: a `UserError`, or the simulator's `SimError`."""
    if isinstance(error, UserError):
        return True
    from embodied_sim.sim_errors import SimError

    return isinstance(error, SimError)


def discard_output() -> None:
    """Discard what is printed from now on, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(text: str) -> None:
    with suppress(BrokenPipeError):  # nobody reads it
        print_text(make_console(stderr=True), escape_controls(text, kept="\n"))
