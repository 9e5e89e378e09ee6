"""Example products, each with its environment and simulated users."""
