"""What options of several commands have in common."""

from __future__ import annotations

from typing import Any

import click

quiet = click.option(
    "-q", "--quiet", "is_quiet", is_flag=True, help="Print errors only (and --json)."
)


def comma_list(kind: click.ParamType[Any]) -> Any:
    """A callback for ``a,b,c``; None where the option is not given."""

    def parse(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        return tuple(kind.convert(part.strip(), param, ctx) for part in value.split(","))

    return parse
