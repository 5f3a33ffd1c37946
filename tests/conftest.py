"""Settings for the whole suite."""

import os

from hypothesis import settings

# A failing example prints the line that replays it (`@reproduce_failure`): see tests/README.md.
# "ci" tries the same examples in each run; "explore" tries many new ones.
settings.register_profile("ci", max_examples=50, derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "explore",
    max_examples=5000,
    derandomize=False,
    deadline=None,
    print_blob=True,
)
settings.load_profile("explore" if os.environ.get("LOCKS_EXPLORE") == "1" else "ci")
