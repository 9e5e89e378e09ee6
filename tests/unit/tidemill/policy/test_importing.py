"""A team's own model as the base: everything it must pass, and what is said when it does not."""

import json
from pathlib import Path

import pytest

from tests.tiny_model import tiny_base
from tidemill.errors import ConfigurationError
from tidemill.policy.base_model import load_base, read_record
from tidemill.policy.chat import decode_completion, render_prompt
from tidemill.policy.importing import ImportOptions, import_base, read_licence
from tidemill.policy.templates import CHATML_TOOLS, TEMPLATES
from tidemill.settings import PolicySettings

CPU = PolicySettings(device="cpu")
MIT = ImportOptions(licence="MIT")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tiny_base(tmp_path / "theirs")
    (path / "base.json").unlink()
    return path


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_good_model_becomes_the_base(tmp_path: Path, source: Path) -> None:
    imported = import_base(source, tmp_path / "base", options=MIT, policy=CPU)
    assert imported.report.max_difference <= 1e-4
    assert imported.report.template_shows_tools
    assert imported.report.max_context == 1024
    assert imported.record == read_record(tmp_path / "base")
    assert imported.record["licence"] == "MIT"
    assert imported.record["made_by"] == "import of theirs"
    base = load_base(tmp_path / "base", settings=CPU)
    assert base.digest == imported.record["digest"]
    assert imported.report.num_parameters == sum(p.numel() for p in base.model.parameters())


def test_the_licence_is_read_or_asked_for(tmp_path: Path, source: Path) -> None:
    with pytest.raises(ConfigurationError, match="--licence"):
        import_base(source, tmp_path / "base", options=ImportOptions(), policy=CPU)
    (source / "README.md").write_text("---\nlanguage: en\nlicense: bsd-3-clause\n---\n# Model\n")
    assert read_licence(source) == "bsd-3-clause"
    assert read_licence(source / "model.safetensors") == "bsd-3-clause"


def test_another_chat_template_takes_its_place(tmp_path: Path, source: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}|{% endfor %}"
    options = ImportOptions(licence="MIT", chat_template=template)
    imported = import_base(source, tmp_path / "base", options=options, policy=CPU)
    assert not imported.report.template_shows_tools
    base = load_base(tmp_path / "base", settings=CPU)
    assert decode_completion(base, render_prompt(base, [{"role": "user", "content": "x"}])) == "x|"


def test_chatml_with_tools_reads_as_meant(tmp_path: Path, source: Path) -> None:
    assert TEMPLATES["chatml-tools"] == CHATML_TOOLS
    options = ImportOptions(licence="MIT", chat_template=CHATML_TOOLS)
    imported = import_base(source, tmp_path / "base", options=options, policy=CPU)
    assert imported.report.template_shows_tools
    base = load_base(tmp_path / "base", settings=CPU)
    call = {"function": {"name": "lamp", "arguments": {"on": 1}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "on"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    text = base.tokenizer.decode(render_prompt(base, messages, [{"function": {"name": "lamp"}}]))
    assert text == (
        "<|im_start|>system\nBe brief.\n"
        'Answer with one call of a tool, as JSON: {"name":NAME,"arguments":{...}}. Tools:\n'
        '{"name": "lamp"}\n<|im_end|>\n'
        "<|im_start|>user\non<|im_end|>\n"
        '<|im_start|>assistant\n{"name":"lamp","arguments":{"on": 1}}<|im_end|>\n'
        "<|im_start|>assistant\n"
    )


def test_chatml_with_signatures_names_tools_and_arguments(tmp_path: Path, source: Path) -> None:
    options = ImportOptions(licence="MIT", chat_template=TEMPLATES["chatml-signatures"])
    assert import_base(
        source, tmp_path / "base", options=options, policy=CPU
    ).report.template_shows_tools
    base = load_base(tmp_path / "base", settings=CPU)
    properties = {"on": {"type": "boolean"}, "level": {"type": "integer"}}
    tools = [
        {"function": {"name": "lamp", "parameters": {"properties": properties}}},
        {"function": {"name": "bell"}},
    ]
    text = base.tokenizer.decode(render_prompt(base, [{"role": "user", "content": "on"}], tools))
    assert text == (
        "<|im_start|>system\nlamp(on, level); bell()<|im_end|>\n"
        "<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n"
    )


def break_config(source: Path) -> None:
    (source / "config.json").unlink()


def break_weights(source: Path) -> None:
    (source / "model.safetensors").write_bytes(b"nothing")


def break_architecture(source: Path) -> None:
    edit(source / "config.json", model_type="no_such_model")


def break_template(source: Path) -> None:
    (source / "chat_template.jinja").write_text("{{ raise_exception('never') }}")


def empty_template(source: Path) -> None:
    (source / "chat_template.jinja").write_text("{% if false %}x{% endif %}")


def no_end(source: Path) -> None:
    edit(source / "tokenizer_config.json", eos_token=None)
    edit(source / "config.json", eos_token_id=None)
    (source / "generation_config.json").unlink()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (break_config, "neither a .gguf file nor a folder"),
        (break_weights, "cannot be loaded"),
        (break_architecture, "cannot be loaded"),
        (break_template, "never"),
        (empty_template, "0 tokens"),
        (no_end, "no end token"),
    ],
)
def test_a_bad_model_is_refused_with_a_reason(  # type: ignore[no-untyped-def]
    tmp_path: Path, source: Path, damage, complaint: str
) -> None:
    damage(source)
    with pytest.raises(ConfigurationError, match=complaint):
        import_base(source, tmp_path / "base", options=MIT, policy=CPU)
    assert not (tmp_path / "base").exists()


def test_weights_of_nan_are_refused(tmp_path: Path, source: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(source / "model.safetensors")
    save_file(
        {k: v * float("nan") for k, v in tensors.items()},
        source / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(ConfigurationError, match="NaN"):
        import_base(source, tmp_path / "base", options=MIT, policy=CPU)
