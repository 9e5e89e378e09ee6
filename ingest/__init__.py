"""From log records to rewarded experiences: the feedback API, the join, rewards, the ledger."""
