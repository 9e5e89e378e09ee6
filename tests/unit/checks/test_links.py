from pathlib import Path

import pytest

from checks import links
from checks.files import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(links, "relative", lambda path: path.name)
    return tmp_path


def test_dead_links_are_found(folder: Path) -> None:
    (folder / "b.md").write_text("# One `two` (three)\n")
    page = folder / "a.md"
    page.write_text(
        "# Here\n[a](b.md) [b](#here) [c](b.md#one-two-three) [d](https://example.com/x)\n"
        "[e](c.md) [f](#there) [g](b.md#two)\n```\n[h](d.md)\n```\n"
    )
    assert list(links.check_document(page)) == [
        "a.md: c.md does not exist",
        "a.md: #there: no such heading",
        "a.md: b.md#two: no such heading",
    ]


def test_the_documents_of_the_repository_are_found() -> None:
    assert ROOT / "README.md" in links.documents()
