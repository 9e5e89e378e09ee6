"""The policy: one definition of base, adapter, log-prob, ratio, sampling and generation."""
