#!/usr/bin/env bash
# make check: everything that can be known without a server. Runs all of it, says what failed, ends with 1 if anything did.
#
#   check.sh [--static | ARGUMENTS OF PYTEST]      --static: without the unit tests, which make test runs too
set -uo pipefail
cd "$(dirname "$0")/.."
python=.local/venv/bin/python
failed=()

# step NAME COMMAND...: its output only where it fails.
step() {
  local name=$1 begun=$SECONDS output; shift
  if output=$("$@" 2>&1); then
    printf '%-10s ok      %3d s\n' "$name" $((SECONDS - begun))
  else
    printf '%-10s FAILED  %3d s\n%s\n' "$name" $((SECONDS - begun)) "$output"
    failed+=("$name")
  fi
}

shell_scripts() { local file; for file in scripts/*.sh deploy/*.sh .ci/run; do bash -n "$file" || return; done; }

step shell shell_scripts
step layers "$python" scripts/check_layers.py
step docs "$python" scripts/check_docs.py
step words "$python" scripts/check_words.py
step lint "$python" -m ruff check --output-format concise .
step types "$python" -m mypy
[ "${1:-}" = --static ] || step unit "$python" -m pytest tests/unit -m "not acceptance" -q -n 2 "$@"
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
