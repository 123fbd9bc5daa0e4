"""`python -m pg_memoir_gateway`: as `pg-memoir gateway`."""

import argparse
import sys

from .command import add_arguments, main

parser = argparse.ArgumentParser(prog="pg-memoir gateway", description="Runs the gateway in the foreground.")
add_arguments(parser)
sys.exit(main(parser.parse_args()))
