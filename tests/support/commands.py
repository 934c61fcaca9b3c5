"""The command line, run in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from pyg_graphzero_cli import main


def graphzero(*arguments: object, code: int = 0, given: str | None = None) -> Result:
    """What ``graphzero`` prints, which ends with this exit code; ``given`` is its input."""
    done = CliRunner().invoke(main, [*map(str, arguments)], input=given)
    assert done.exit_code == code, done.output
    return done
