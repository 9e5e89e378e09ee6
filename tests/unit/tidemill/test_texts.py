from tidemill.texts import is_storable


def test_what_a_text_column_holds() -> None:
    assert is_storable(None)
    assert is_storable("Zo\u00eb \U0001f600")
    assert not is_storable("\0")
    assert not is_storable("\ud800")
