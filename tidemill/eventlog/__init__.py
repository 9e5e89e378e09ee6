"""The event log: one protocol, an embedded implementation and Kafka's."""
