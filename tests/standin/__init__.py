"""A fleet to test against: stand-ins for vLLM pods, and the distances between them and their clients."""
