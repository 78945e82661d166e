"""`python -m ropebench.cli`, the same as `python -m ropebench`."""

import sys

from ropebench.cli import main

if __name__ == "__main__":
    sys.exit(main())
