"""`python -m pg_memoir_cli` is the command `pg-memoir`."""

import sys

from .app import main

if __name__ == "__main__":
    sys.exit(main())
