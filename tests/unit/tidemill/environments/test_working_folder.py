"""A product's own environment, not installed, in the folder where the commands run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.supervisor.parts import SERVING, build_parts

ROOT = Path(__file__).parents[4]
ADDRESSES = {"serving": "http://127.0.0.1:1", "feedback": "http://127.0.0.1:2"}
PART = next(part for part in build_parts({}, ADDRESSES) if part.name == SERVING).command
CONSOLE = (str(Path(sys.executable).with_name("tidemill")),)
AS_PART = PART[: PART.index("serve")]
PRODUCT = """
class Environment:
    name, tasks, verify = "mine", None, None
"""


def run(folder: Path, *command: str) -> tuple[int, str]:
    """Run a command in a folder that Python does not know; return exit code and stderr."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TIDEMILL_DATA": str(folder / "data")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", [CONSOLE, AS_PART], ids=["console script", "part"])
def test_every_way_to_run_finds_the_product_in_the_working_folder(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "my_product").mkdir()
    (tmp_path / "my_product" / "environment.py").write_text(PRODUCT)
    (tmp_path / "tidemill.toml").write_text('environment = "my_product.environment:Environment"')
    code, said = run(tmp_path, *command, "base", "train", "--steps", "1")
    # What it lacks can only be said of one that was found.
    assert (code, "has no supervised_examples" in said) == (2, True), said


@pytest.mark.parametrize("command", [CONSOLE, AS_PART], ids=["console script", "part"])
def test_a_folder_of_the_product_never_stands_in_for_ours(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "__init__.py").write_text("raise RuntimeError('the product')")
    (tmp_path / "tidemill.toml").write_text("modle = 'tide'")
    code, said = run(tmp_path, *command, "serve")
    assert (code, "modle: unknown key" in said) == (2, True), said
