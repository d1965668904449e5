"""For every test."""

from hypothesis import HealthCheck, settings

# The machines that run these are shared: how long one example takes says nothing.
settings.register_profile("isogloss", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isogloss")
