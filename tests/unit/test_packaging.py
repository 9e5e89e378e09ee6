"""The wheel holds our packages, whole, and nothing else."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points

import pytest

from checks.files import PACKAGES, ROOT

_LOCK = ROOT / "requirements.lock"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in a freshly built wheel."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


def test_the_wheel_holds_every_file_of_our_packages(wheel: list[str]) -> None:
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert sources <= set(wheel)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel)


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    roots = {name.split("/")[0] for name in wheel}
    (metadata,) = roots - set(PACKAGES)
    assert re.fullmatch(r"tidemill-[\d.]+\.dist-info", metadata)


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="tidemill")
    assert command.value == "tidemill.cli.main:main"


def test_the_lock_names_versions_and_no_addresses() -> None:
    lines = _LOCK.read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)


def test_the_lock_holds_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = {_normal(line.split("==")[0]) for line in _LOCK.read_text().splitlines()}
    assert {_normal(re.split(r"[\[<>=!~ ]", text)[0]) for text in declared} <= locked


def test_every_test_folder_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
