"""Policy versions on disk: whole adapters, manifests, digests, atomic writes."""
