import json

import pytest

from examples.command_assistant.client import Access, answer_text


def _message(*calls: tuple[str, str], content: str | None = None) -> dict[str, object]:
    items = [
        {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": text}}
        for place, (name, text) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, **({"tool_calls": items} if items else {})}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (_message(("heat", '{"room": "hall"}')), '{"name":"heat","arguments":{"room": "hall"}}'),
        (_message(("heat", "{")), '{"name":"heat","arguments":{}'),
        (_message(content="{oops"), "{oops"),
        (_message(content=None), ""),
        (_message(("heat", "{}"), ("light", "{}")), ""),
    ],
)
def test_an_answer_is_the_text_of_its_one_call(message, text) -> None:
    assert answer_text(message) == text


def test_access_is_read_from_what_up_wrote(tmp_path) -> None:
    with pytest.raises(OSError, match="addresses"):
        Access.of(tmp_path)
    addresses = {"serving": "http://127.0.0.1:1", "feedback": "http://127.0.0.1:2"}
    (tmp_path / "addresses.json").write_text(json.dumps(addresses))
    (tmp_path / "keys.json").write_text(json.dumps({"completions": "tdm_a"}))
    access = Access.of(tmp_path)
    assert (access.serving, access.keys["completions"]) == ("http://127.0.0.1:1", "tdm_a")
