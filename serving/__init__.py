"""OpenAI-style generation by versions that swap without dropping a request."""
