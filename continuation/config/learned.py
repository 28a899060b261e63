"""Opens what clients learned of limits, from the store that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from continuation.limits import Learned
from continuation.policy import file_of, is_url

if TYPE_CHECKING:
    from continuation.config import Config


def open_learned(config: Config) -> Learned:
    """Return what is learned for a new client: read from its store if it has one, and saved there.

    It never raises, and waits for no server.
    """
    learned = Learned()
    if is_url(kept := config.policy_for("").learned_file):
        from continuation.limits.learned_postgres import LearnedTableSync

        LearnedTableSync(kept, learned).attach()
    elif kept:
        from continuation.limits.learned_file import LearnedFileSync  # few clients use it

        LearnedFileSync(file_of(kept), learned).attach()
    return learned
