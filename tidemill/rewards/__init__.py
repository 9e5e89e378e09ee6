"""From feedback to a reward: declared metrics, aggregation, composite, verifier plugins.

Shared, since ingest rewards live interactions and others show or check the same numbers. No torch.
"""
