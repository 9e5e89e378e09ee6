"""Long fault runs: real processes and servers that die at random, and a set check at the end."""
