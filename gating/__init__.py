"""From candidate to verdict: offline suite, live evidence, promotion and rollback."""
