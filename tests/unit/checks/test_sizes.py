import ast

import pytest

from checks.sizes import check_function, functions_of


def _check(source: str) -> list[str]:
    (function, *_) = functions_of(ast.parse(source))
    return check_function(function)


def _lines(count: int) -> str:
    return "def f():\n" + "    pass\n" * (count - 1)


def test_a_function_may_have_sixty_lines() -> None:
    assert _check(_lines(60)) == []
    assert _check(_lines(61)) == ["61 lines, at most 60"]


@pytest.mark.parametrize(
    ("body", "is_fine"),
    [
        ("for a in b:\n  while c:\n   if d:\n    e()", True),
        ("for a in b:\n  while c:\n   if d:\n    with e:\n     f()", True),
        ("for a in b:\n  while c:\n   if d:\n    with e:\n     if f:\n      g()", False),
        # An elif is no step deeper.
        ("if a:\n  b()\n elif c:\n  d()\n elif e:\n  f()\n elif g:\n  h()", True),
        ("try:\n  a()\n except B:\n  for c in d:\n   if e:\n    if f:\n     g()", False),
        ("match a:\n  case 1:\n   for b in c:\n    if d:\n     e()", True),
        # An inner function is judged by itself.
        ("for a in b:\n  if c:\n   def g():\n    for d in e:\n     if f:\n      pass", True),
    ],
)
def test_nesting_is_limited_to_three(body: str, is_fine: bool) -> None:
    assert (_check(f"def f():\n {body}\n") == []) is is_fine
