import json
from pathlib import Path

from checks import coverage
from checks.files import relative
from checks.pure import find_problems, find_pure_files


def test_mathematics_and_decisions_are_pure() -> None:
    names = {relative(path) for path in find_pure_files()}
    assert {"tidemill/policy/importance.py", "gating/betting.py", "learner/advantages.py"} <= names
    assert find_problems() == []


def test_an_uncovered_line_of_a_pure_file_is_a_problem(tmp_path: Path) -> None:
    files = {relative(path): {"missing_lines": []} for path in find_pure_files()}
    first, second, *_ = files
    files[first] = {"missing_lines": [3, 7]}
    del files[second]
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": files}))
    problems = coverage.find_problems(report)
    assert len(problems) == 2
    assert f"{first}: a pure file, but no test runs line 3, 7" in problems
