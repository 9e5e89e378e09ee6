"""An example product: a home assistant that turns a request in words into one tool call."""
