"""The vocabulary that all parts share: ids, events, experiences, the lifecycle of a version.

Pure: standard library and pydantic only.
"""
