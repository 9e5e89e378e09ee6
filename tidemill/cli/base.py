"""Commands of the base model: `base train`, `base import`, `base show`."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from learner.supervised import Progress, SupervisedOptions
    from tidemill.settings import SharedSettings


def _finite(number: float | None) -> float | None:
    # `nan` passes both bounds of an option: no comparison with it is true.
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is no finite number")
    return number


_base = typer.Typer(help="The frozen base model: version v0.", no_args_is_help=True)

Force = Annotated[
    bool, typer.Option("--force", help="Replace the base that is there: its versions are lost.")
]
Licence = Annotated[
    str | None,
    typer.Option(help="SPDX name of a given model, when its folder's README does not say it."),
]
ChatTemplate = Annotated[
    str | None,
    typer.Option(
        help="For a given model: Jinja file instead of its own, `chatml-tools` or "
        "`chatml-signatures`."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(_base, name="base")


@_base.command("train")
def train(  # noqa: PLR0913  typer reads the options from the parameters
    ctx: typer.Context,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.1, callback=_finite, help="Wall time of training; 60 without --steps."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimiser steps; equal numbers, equal weights.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    hidden_size: Annotated[int, typer.Option(min=16, max=1024)] = 64,
    layers: Annotated[int, typer.Option(min=1, max=48)] = 4,
    batch_size: Annotated[int, typer.Option(min=1, max=1024)] = 16,
    num_examples: Annotated[int, typer.Option(min=1)] = 8192,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-8, max=1, callback=_finite, help="Peak; by default 5e-3, with --from 2e-4."
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Start from this model, as `base import` takes it, with its own shape."
        ),
    ] = None,
    licence: Licence = None,
    chat_template: ChatTemplate = None,
    force: Force = False,
) -> None:
    """Train a base on the examples of the settings' environment, from nothing or --from a model."""
    shared = load_settings(ctx).shared
    _refuse_overwrite(shared, force=force)
    from learner.supervised import SupervisedOptions
    from tidemill.policy.fresh_base import LlamaShape
    from tidemill.policy.importing import ImportOptions

    options = SupervisedOptions(
        seed=seed,
        steps=steps,
        seconds=60.0 if seconds is None and steps is None else seconds,
        batch_size=batch_size,
        num_examples=num_examples,
        learning_rate=learning_rate,
        source=source,
        source_options=ImportOptions(licence=licence, chat_template=_template(chat_template)),
        shape=LlamaShape(
            hidden_size=hidden_size, num_layers=layers, feed_forward=round(hidden_size * 8 / 3)
        ),
    )
    final = _train(shared, options)
    record = _record(shared)
    typer.echo(
        f"base {record['digest'][:12]} in {shared.base_path}: {final.step} steps in "
        f"{final.elapsed_s:.0f} s, loss {final.loss:.3f} nats a token"
    )


@_base.command("import")
def import_(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(help="Folder (safetensors, tokenizer, chat template) or .gguf file.")
    ],
    licence: Licence = None,
    chat_template: ChatTemplate = None,
    force: Force = False,
) -> None:
    """Check a transformers causal LM and make it the base."""
    shared = load_settings(ctx).shared
    _refuse_overwrite(shared, force=force)
    from tidemill.policy.devices import prepare_torch
    from tidemill.policy.importing import ImportOptions, import_base

    prepare_torch(shared.policy)
    options = ImportOptions(licence=licence, chat_template=_template(chat_template))
    imported = import_base(source, shared.base_path, options=options, policy=shared.policy)
    _print(asdict(imported.report) | dict(imported.record))
    if not imported.report.template_shows_tools:
        typer.secho(
            "the chat template ignores tools, so the model never sees them; import again with "
            "--chat-template if the product uses tools",
            err=True,
            fg="yellow",
        )


@_base.command("show")
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check the base's files against their record and say what it is."""
    shared = load_settings(ctx).shared
    _record(shared)
    from tidemill.policy.base_model import load_base
    from tidemill.snapshots.policies import base_version

    base = load_base(shared.base_path, settings=shared.policy)
    facts = _record(shared) | {
        "version": base_version(base),
        "path": str(shared.base_path),
        "num_parameters": sum(parameter.numel() for parameter in base.model.parameters()),
        "max_context": base.max_context,
    }
    if as_json:
        typer.echo(json.dumps(facts, sort_keys=True))
    else:
        _print(facts)


def _train(shared: "SharedSettings", options: "SupervisedOptions") -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from learner.supervised import train_base
    from tidemill.environments.loading import load_environment
    from tidemill.policy.devices import prepare_torch

    environment: Any = load_environment(shared.environment)
    if not hasattr(environment, "supervised_examples"):
        raise ConfigurationError(
            f"{shared.environment} has no supervised_examples(seed, count) to train a base on; "
            "import one with `tidemill base import`"
        )
    prepare_torch(shared.policy)
    columns = (TextColumn("training the base"), BarColumn(), TextColumn("{task.description}"))
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("reading examples", total=1.0)

        def show_progress(progress: "Progress") -> None:
            bar.update(
                task,
                completed=progress.fraction,
                description=f"step {progress.step}, loss {progress.loss:.3f}",
            )

        return train_base(
            environment,
            shared.base_path,
            options=options,
            policy=shared.policy,
            on_progress=show_progress,
        )


def _refuse_overwrite(shared: "SharedSettings", *, force: bool) -> None:
    if shared.base_path.exists() and not force:
        raise ConfigurationError(
            f"{shared.base_path} holds a base already; versions trained on it would be lost; "
            "pass --force to replace it"
        )


def _record(shared: "SharedSettings") -> dict[str, Any]:
    from tidemill.policy.base_model import read_record

    return read_record(shared.base_path)


def _template(name: str | None) -> str | None:
    from tidemill.policy.templates import TEMPLATES

    if name is None or name in TEMPLATES:
        return TEMPLATES.get(name or "")
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(TEMPLATES)
        raise ConfigurationError(
            f"--chat-template {name!r} is no readable file ({error}) and none of: {known}"
        ) from error


def _print(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        typer.echo(f"{name:>22}  {value}")
