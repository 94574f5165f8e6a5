"""Structured logs, metrics and traces of a replica."""
