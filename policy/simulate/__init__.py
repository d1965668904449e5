"""A fleet that exists only in numbers: the very same `decide`, routers with their own stale view, nodes that queue,
cache, slow down and die. Everything follows from a scenario and a seed."""
