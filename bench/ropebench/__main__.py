"""`python -m ropebench`: the command, where the script is not on the path."""

from __future__ import annotations

import sys

from ropebench.cli import main

if __name__ == "__main__":
    sys.exit(main())
