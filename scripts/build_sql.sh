#!/usr/bin/env bash
# Builds what gets installed (build_sql.py), with a Python that has the package confusable-homoglyphs: the one asked for, of
# the checkout, of an image, of the system.
#
#   build_sql.sh [OUT]     OUT defaults to .local/build
set -euo pipefail
cd "$(dirname "$0")/.."
for python in "${PG_MEMOIR_PYTHON:-}" .local/venv/bin/python "${PG_MEMOIR_STATE:-.local}/venv/bin/python" python3; do
  if [ -n "$python" ] && "$python" -c 'import confusable_homoglyphs' 2>/dev/null; then
    exec "$python" scripts/build_sql.py "${1:-.local/build}"
  fi
done
echo "build_sql: no Python here has the package confusable-homoglyphs. Run scripts/setup.sh, or install it" >&2
exit 1
