"""Endpoints by noun: each file has the request bodies it takes and the calls it makes."""
