"""Simulated learning: rollouts on the environment's training tasks, scored by its verifier."""
