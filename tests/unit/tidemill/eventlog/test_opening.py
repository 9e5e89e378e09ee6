from pathlib import Path

from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.eventlog.opening import open_log
from tidemill.settings import EmbeddedLogSettings, KafkaLogSettings, SharedSettings


def test_the_embedded_log_lies_under_the_data_folder(tmp_path: Path) -> None:
    shared = SharedSettings(data=tmp_path, log=EmbeddedLogSettings(num_partitions=3))
    log = open_log(shared)
    assert isinstance(log, EmbeddedLog)
    log.create_topics(("t",))
    assert (tmp_path / "log" / "t.db").exists()
    assert sorted(log.bounds("t")) == [0, 1, 2]
    log.close()


def test_kafka_is_opened_without_asking_it(tmp_path: Path) -> None:
    # Nobody listens on port 1.
    shared = SharedSettings(data=tmp_path, log=KafkaLogSettings(bootstrap_servers="127.0.0.1:1"))
    log = open_log(shared)
    assert type(log).__name__ == "KafkaLog"
    log.close()
