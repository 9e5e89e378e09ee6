"""What the guides tell a reader to type exists: commands, options, settings, in a working order."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from checks.files import ROOT
from tidemill.cli.main import app
from tidemill.cli.settings import Settings
from tidemill.rewards.metrics_file import parse_metrics

GUIDES = ("README.md", "docs/your-product.md", "docs/operations.md")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_SETTING = re.compile(r"(?:log|serving|ingest|learner|backfill|gating)(?:\.[a-z_]+)+")


def read(guide: str) -> str:
    """Return the text of one guide."""
    return (ROOT / guide).read_text("utf-8")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `tidemill` of each command, in blocks and in running text."""
    blocks = [body for language, body in _BLOCK.findall(text) if language == "bash"]
    lines = [line for body in blocks for line in body.splitlines()]
    for line in [*lines, *_CODE.findall(_BLOCK.sub("", text))]:
        for part in line.split("&&"):
            name, _, rest = part.strip().partition(" ")
            if name.rpartition("/")[2] == "tidemill":
                yield shlex.split(rest.replace("[", " ").replace("]", " "), comments=True)


def find_problem(words: list[str]) -> str | None:
    """Return what of a command does not exist."""
    command: Any = typer.main.get_command(app)
    options = {name for option in command.params for name in option.opts}
    for word in words:
        if word.startswith("--"):
            if word not in options:
                return f"{' '.join(words)}: no option {word}"
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return f"{' '.join(words)}: no command {word}"
            command = command.commands[word]
            options |= {name for option in command.params for name in option.opts}
    return None


def is_setting(path: str) -> bool:
    """Tell whether a dotted path names a field of the settings, in any kind of block."""
    values: list[Any] = [Settings]
    for name in path.split("."):
        fields = [v.model_fields[name].annotation for v in values if name in v.model_fields]
        if not fields:
            return False
        values = [kind for field in fields for kind in _models(field)]
    return True


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_exists_with_its_options(guide: str) -> None:
    found = list(commands(read(guide)))
    assert found
    assert [problem for words in found if (problem := find_problem(words))] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_every_setting_exists(guide: str) -> None:
    codes = {code.split(" = ")[0] for code in _CODE.findall(_BLOCK.sub("", read(guide)))}
    named = {code for code in codes if _SETTING.fullmatch(code)}
    assert [path for path in sorted(named) if not is_setting(path)] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_of_settings_is_valid(guide: str) -> None:
    for language, body in _BLOCK.findall(read(guide)):
        if language == "toml" and "[metrics." in body:
            assert parse_metrics(body).metrics
        elif language == "toml":
            Settings(**tomllib.loads(body))


@pytest.mark.parametrize("guide", GUIDES)
def test_the_environment_is_declared_before_the_parts_start(guide: str) -> None:
    blocks = [body for _, body in _BLOCK.findall(read(guide))]
    typed = "\n".join(blocks)
    declared = re.search(r"^environment = |`environment`", typed, re.MULTILINE)
    started = re.search(r"tidemill up\b", typed)
    assert declared is not None
    assert started is not None
    assert declared.start() < started.start()


def test_what_does_not_exist_is_found() -> None:
    assert find_problem(["base", "fetch"]) == "base fetch: no command fetch"
    assert find_problem(["up", "--host", "x"]) == "up --host x: no option --host"
    assert is_setting("gating.offline.threshold")
    assert is_setting("log.append_timeout_s")
    assert not is_setting("serving.share")
    assert not is_setting("serving.port.number")
