"""Real servers on this machine, for the demo on the production column and for tests."""
