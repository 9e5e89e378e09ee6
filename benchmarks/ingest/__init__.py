"""How fast feedback gets in; the README beside this says how to read the figures."""
