"""Topics on Kafka: what is declared of them, what there is, and how the two come together."""

from collections.abc import Mapping
from typing import Any

import kafka
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import Drift
from tidemill.eventlog.kafka_clients import MAX_MESSAGE_BYTES
from tidemill.settings import KafkaLogSettings

_KEEP_ALL = "-1"


def declared_configs(settings: KafkaLogSettings) -> dict[str, str]:
    """Return the settings of every topic, by Kafka's names."""
    retention_s, retention_bytes = settings.retention_s, settings.retention_bytes
    return {
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "compression.type": "zstd",
        # Records are never thinned out by key, and a replica that lags never becomes the leader.
        "cleanup.policy": "delete",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(settings.num_insync),
        # Feedback must outlive any outage of its readers; retention is a decision of its own.
        "retention.ms": _KEEP_ALL if retention_s is None else str(int(retention_s * 1000)),
        "retention.bytes": _KEEP_ALL if retention_bytes is None else str(retention_bytes),
    }


def create_missing(
    admin: KafkaAdminClient, settings: KafkaLogSettings, topics: tuple[str, ...]
) -> None:
    """Create the topics that are missing, as declared; those that are there stay as they are."""
    for topic in sorted(set(topics) - set(admin.list_topics())):
        declared = {
            "num_partitions": settings.num_partitions,
            "replication_factor": settings.replication_factor,
            "configs": declared_configs(settings),
        }
        try:
            admin.create_topics({topic: declared})
        except kafka.errors.TopicAlreadyExistsError:
            # Another process was faster.
            continue
    admin.wait_for_topics(list(topics))


def find_drift(
    admin: KafkaAdminClient, settings: KafkaLogSettings, topics: tuple[str, ...]
) -> list[Drift]:
    """Return where topics differ from what is declared; a missing one is one difference."""
    known = set(admin.list_topics())
    there = [topic for topic in topics if topic in known]
    missing = [
        Drift(topic, "topic", "missing", "there", True) for topic in topics if topic not in known
    ]
    if not there:
        return missing
    configs = _read_configs(admin, there)
    described = {one["name"]: one["partitions"] for one in admin.describe_topics(there)}
    found = []
    for topic in there:
        found += _drift_of_shape(topic, described[topic], settings)
        found += drift_of_configs(topic, configs[topic], declared_configs(settings))
    return missing + found


def drift_of_configs(
    topic: str, found: Mapping[str, str | None], declared: Mapping[str, str]
) -> list[Drift]:
    """Return the settings of a topic that are other than declared."""
    return [
        Drift(topic, name, found.get(name) or "not set", wanted, True)
        for name, wanted in declared.items()
        if found.get(name) != wanted
    ]


def set_declared(admin: KafkaAdminClient, drifts: list[Drift]) -> None:
    """Set the settings that differ; whatever else somebody set stays.

    Raises:
        EventLogUnavailableError: the brokers refused one; those of other topics may be set.
    """
    by_topic: dict[str, dict[str, str]] = {}
    for drift in drifts:
        if drift.is_repairable and drift.name != "topic":
            by_topic.setdefault(drift.topic, {})[drift.name] = drift.declared
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        for topic, configs in by_topic.items()
    ]
    if not resources:
        return
    for topic, result in admin.alter_configs(resources)["topic"].items():
        if result != "OK":
            raise EventLogUnavailableError(f"Kafka refused {by_topic[topic]} of {topic}: {result}")


def _drift_of_shape(
    topic: str, partitions: list[dict[str, Any]], settings: KafkaLogSettings
) -> list[Drift]:
    num_copies = min((len(one["replica_nodes"]) for one in partitions), default=0)
    shape = (
        ("partitions", len(partitions), settings.num_partitions),
        ("replication factor", num_copies, settings.replication_factor),
    )
    return [
        Drift(topic, name, str(found), str(declared), False)
        for name, found, declared in shape
        if found != declared
    ]


def _read_configs(admin: KafkaAdminClient, topics: list[str]) -> dict[str, dict[str, str | None]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    answer = admin.describe_configs(resources, config_filter="all")["topic"]
    return {
        topic: {name: one["value"] for name, one in configs.items()}
        for topic, configs in answer.items()
    }
