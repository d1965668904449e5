"""Real requests through a real Envoy, the real service and stand-in pods."""
