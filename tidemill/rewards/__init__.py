"""From feedback to one scalar: declared metrics, aggregation, the composite. No torch here."""
