from tidemill.cli.printing import printable


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable("grün \x1b[31m\n\0\u202e") == "grün \\x1b[31m\\n\\x00\\u202e"
    assert printable("\ud800") == "\\ud800"


def test_bytes_that_are_no_text_are_shown() -> None:
    assert printable(b"ok \xff") == "ok \\xff"
