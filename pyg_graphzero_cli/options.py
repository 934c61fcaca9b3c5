"""Options that several commands have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce, wraps
from typing import Any, TypeAlias

import click

Command: TypeAlias = Callable[..., Any]

_SEEDS = "An index set or mask of the store; train_idx or train_mask."
INPUT_TYPE = "The seeds' node type, where several have such a set."


def option(names: str, about: str, kind: Any = None, **how: Any) -> Callable[[Command], Command]:
    """An option: its names, its help, and its type; a tuple of texts is a choice."""
    if isinstance(kind, tuple):
        kind = click.Choice(kind)
    shown = how.get("default") is not None
    return click.option(*names.split(), type=kind, help=about, show_default=shown, **how)


quiet = click.option(
    "-q", "--quiet", "is_quiet", is_flag=True, help="Print errors only (and --json)."
)
progress_bars = click.option(
    "--progress/--no-progress", default=None, help="Progress bars; on in a terminal."
)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    """A command with some options more, in their order."""
    return reduce(lambda made, option: option(made), reversed(options), command)


def bounded(command: Command) -> Command:
    """A command that works in bounded memory, and returns a summary, which is printed."""

    @wraps(command)
    def run(*, is_quiet: bool, as_json: bool, progress: bool | None, **options: Any) -> None:
        summary = command(progress=False if is_quiet else progress, **options)
        if as_json or not is_quiet:
            click.echo(json.dumps(summary.to_dict(), indent=2) if as_json else str(summary))

    return _with(
        run,
        option(
            "--memory", "Memory of the process, such as 4GB; half of the free memory by default."
        ),
        progress_bars,
        quiet,
        click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
    )


def sampled(command: Command) -> Command:
    """The options of a command that samples batches as training would."""
    size, seconds = click.IntRange(min=1), click.FloatRange(min=0, min_open=True)
    fan_out = comma_list(click.IntRange(min=-1))
    return _with(
        command,
        option("--num-neighbors", "Fan-out per hop.", callback=fan_out, default="15,10,5"),
        option("--batch-size", "Seeds each.", size, default=1024),
        option("--seeds", _SEEDS, metavar="NAME"),
        option("--input-type", INPUT_TYPE),
        option("--seconds", "How long to load batches.", seconds, default=10.0),
    )


def comma_list(kind: click.ParamType[Any]) -> Any:
    """A callback for ``a,b,c``; None where the option is not given."""

    def parse(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return [kind.convert(part.strip(), param, ctx) for part in value.split(",")]
        except click.BadParameter as error:
            found = f"found {value!r}, expected values with commas between them: {error.message}"
            raise click.BadParameter(found, ctx, param) from None

    return parse
