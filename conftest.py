"""For every test of the repository."""

from hypothesis import settings

# A law is about values, not about how long a busy machine takes for an example.
settings.register_profile("hami", deadline=None)
settings.load_profile("hami")
