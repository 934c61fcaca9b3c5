"""The command line: ``graphzero convert | info | verify | clean | report | doctor …``.

A package of its own, because whatever is imported from ``pyg_graphzero`` brings torch and PyG,
which takes seconds: here a command imports that when it is run, and ``--help`` does not.

Exit codes: 0 done, 1 ``verify`` found damage, 2 an error (one line on stderr), 3 a fault of the
package itself, 130 interrupted.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import click

from pyg_graphzero_cli.bench import bench
from pyg_graphzero_cli.convert import convert
from pyg_graphzero_cli.inspect import clean, info, report, verify
from pyg_graphzero_cli.shard import shard
from pyg_graphzero_cli.tune import doctor, optimize

__all__ = ["main"]

ERROR, FAULT, INTERRUPTED = 2, 3, 130


class _Group(click.Group):
    """Turns exceptions into one line and an exit code; ``--traceback`` shows the rest."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params.get("traceback"):
                raise
            is_fault = _is_fault(error)
            click.echo(f"error: {(_fault_line if is_fault else _one_line)(error)}", err=True)
            ctx.exit(FAULT if is_fault else ERROR)


def _is_fault(error: Exception) -> bool:
    """Whether it is a fault of this program, whose message no user was meant to read."""
    if type(error).__module__.partition(".")[0] == "pyg_graphzero":
        return False
    if isinstance(error, LookupError):  # a bare key, or a sentence that says what was expected
        return "expected" not in str(error)
    return not isinstance(error, (OSError, ValueError, MemoryError))


def _fault_line(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {_one_line(error)} ({where.filename}, line {where.lineno}, in "
        f"{where.name}). This is a fault of pyg_graphzero, not of the input; please report it with "
        "what is printed after `graphzero --traceback` in place of `graphzero`"
    )


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"out of memory {error}".strip()
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join((message or repr(error)).split())


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 verify found damage, 2 an error, 3 a fault of this program, 130 "
    "interrupted.",
)
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
@click.version_option(package_name="pyg_graphzero")
def main(traceback: bool) -> None:
    """Graphs on disk for PyTorch Geometric."""
    # PyG compiles some functions while it is imported, of which torch 2.14 and later warn.
    warnings.filterwarnings("ignore", ".torch.jit", FutureWarning)


for _command in (bench, clean, convert, doctor, info, optimize, report, shard, verify):
    main.add_command(_command)
