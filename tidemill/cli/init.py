"""`tidemill init`: a settings file and a metrics file to begin with."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

_FILES = ("tidemill.toml", "metrics.toml")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(),
) -> None:
    """Write a commented tidemill.toml and metrics.toml; what is there is never overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = False
    for name in _FILES:
        text = resources.files("tidemill.cli").joinpath("templates", name).read_text("utf-8")
        try:
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            typer.echo(f"{folder / name} is there already, left as it is")
            kept = True
        else:
            typer.echo(f"wrote {folder / name}")
    if not kept:
        typer.echo(
            "next: `environment` in tidemill.toml, `tidemill base import DIR` or "
            "`tidemill base train`, then `tidemill up`"
        )
