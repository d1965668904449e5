"""Anything at all, at every door."""
