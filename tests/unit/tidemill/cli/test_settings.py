from pathlib import Path

import pytest

from learner.settings import LearnerSettings, PpoClipSettings
from tidemill.cli.settings import Settings, read_settings
from tidemill.errors import ConfigurationError
from tidemill.settings import EmbeddedLogSettings, KafkaLogSettings, SharedSettings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def _write(text: str) -> Path:
    path = Path("tidemill.toml")
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_hold() -> None:
    settings = read_settings()
    assert settings.shared == SharedSettings()
    assert settings.learner == LearnerSettings()
    assert isinstance(settings.shared.log, EmbeddedLogSettings)


def test_the_file_fills_shared_fields_and_blocks() -> None:
    _write(
        """
        data = "state"
        model = "house"
        [log]
        kind = "kafka"
        bootstrap_servers = "broker:9092"
        [policy.lora]
        rank = 4
        [learner]
        batch_size = 8
        [learner.objective]
        kind = "ppo_clip"
        [serving]
        port = 9000
        """
    )
    settings = read_settings()
    assert settings.shared.data == Path("state")
    assert settings.shared.model == "house"
    assert settings.shared.policy.lora.rank == 4
    assert isinstance(settings.shared.log, KafkaLogSettings)
    assert settings.learner.batch_size == 8
    assert isinstance(settings.learner.objective, PpoClipSettings)
    assert settings.serving.port == 9000


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    _write('data = "file"\n[learner]\nbatch_size = 8\nmin_batch_size = 2\n')
    monkeypatch.setenv("TIDEMILL_DATA", "environment")
    monkeypatch.setenv("TIDEMILL_LEARNER__BATCH_SIZE", "32")
    monkeypatch.setenv("TIDEMILL_DATABASE__URL", "postgresql://rows/tidemill")
    settings = read_settings()
    assert settings.shared.data == Path("environment")
    assert settings.learner.batch_size == 32
    # The other keys of the block stay as the file has them.
    assert settings.learner.min_batch_size == 2
    assert settings.shared.database_url == "postgresql://rows/tidemill"


def test_the_log_can_be_chosen_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_LOG__KIND", "kafka")
    monkeypatch.setenv("TIDEMILL_LOG__BOOTSTRAP_SERVERS", "broker:9092")
    log = read_settings().shared.log
    assert isinstance(log, KafkaLogSettings)
    assert log.bootstrap_servers == "broker:9092"


def test_variables_of_other_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_TEST_BOOTSTRAP", "broker:9092")
    monkeypatch.setenv("TIDEMILL_LOG_LEVEL", "DEBUG")
    assert read_settings().shared == SharedSettings()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("modle = 'tide'", "modle"),
        ("[learner]\nbatch_sise = 8", "learner.batch_sise"),
        ("[policy.lora]\nrnak = 8", "policy.lora.rnak"),
        ("[trainer]\nbatch_size = 8", "trainer"),
        ("[learner.objective]\nkind = 'ppo_clip'\nclip = 1", "learner.objective.ppo_clip.clip"),
    ],
)
def test_an_unknown_key_is_refused_by_name(text: str, key: str) -> None:
    _write(text)
    with pytest.raises(ConfigurationError, match=f"  {key}: unknown key"):
        read_settings()


def test_an_unknown_key_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_LEARNER__BATCH_SISE", "8")
    with pytest.raises(ConfigurationError, match=r"learner\.batch_sise: unknown key"):
        read_settings()


def test_a_wrong_value_is_named_with_its_bound() -> None:
    _write("[learner]\nbatch_size = 1\n[serving]\nport = 'http'")
    with pytest.raises(ConfigurationError) as caught:
        read_settings()
    assert "learner.batch_size: Input should be greater than or equal to 2 (value: 1)" in str(
        caught.value
    )
    assert "serving.port" in str(caught.value)


def test_values_that_contradict_each_other_are_refused() -> None:
    _write("[learner]\nbatch_size = 2\nmin_batch_size = 4")
    with pytest.raises(ConfigurationError, match="min_batch_size 4 is above batch_size 2"):
        read_settings()


def test_a_missing_file_that_was_named_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"settings file other\.toml.*tidemill init"):
        read_settings(Path("other.toml"))


def test_a_broken_file_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="no valid TOML"):
        read_settings(_write("model = "))


def test_settings_cannot_be_changed() -> None:
    settings = read_settings()
    assert isinstance(settings, Settings)
    with pytest.raises(ValueError, match="frozen"):
        settings.model = "other"  # type: ignore[misc]


KAFKA = "[log]\nkind = 'kafka'\nbootstrap_servers = 'b:1'\n"


@pytest.mark.parametrize("password", ["water", "0123", "true", '{"a": 1}', "1e9", "null"])
def test_the_password_of_kafka_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    _write(f"{KAFKA}[log.security]\nprotocol = 'SASL_SSL'\nusername = 'mill'\n")
    monkeypatch.setenv("TIDEMILL_LOG__SECURITY__PASSWORD", password)
    settings = read_settings()
    assert isinstance(settings.log, KafkaLogSettings)
    assert settings.log.security.password is not None
    assert settings.log.security.password.get_secret_value() == password
    assert password not in repr(settings)


@pytest.mark.parametrize(
    "text",
    [
        f"{KAFKA}[log.security]\nprotocol = 'SSL'\nusername = 'mill'\npassword = 'tell-nobody'",
        f"{KAFKA}[log.security]\nprotocol = 'SASL_SSL'\npassword = ['tell-nobody']",
        "[log]\nbootstrap_servers = 'b:1'\n[log.security]\npassword = 'tell-nobody'",
        "secret = ['tell-nobody']",
        "[database]\nurl = ['postgresql://mill:tell-nobody@rows/tidemill']",
        f"{KAFKA}[log.security]\nprotocol = 'SASL'\npassword = 'tell-nobody'",
    ],
)
def test_no_message_shows_a_secret(text: str) -> None:
    _write(text)
    with pytest.raises(ConfigurationError) as caught:
        read_settings()
    assert "tell-nobody" not in str(caught.value)
