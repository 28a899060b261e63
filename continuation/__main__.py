"""`python -m continuation` is the command `continuation`."""

import sys

from continuation.cli import main

if __name__ == "__main__":
    sys.exit(main())
