#!/usr/bin/env bash
# Builds what gets installed: OUT/pg_memoir.sql (installs and upgrades, needs no other file) from migrations/ and sql/, and
# OUT/pg_memoir_plpython.sql. Files that would not change are not touched; the same sources and the same Python give the
# same bytes.
#
# Tables (sql/data) and the data of languages (plpython/pg_memoir_language/data) become functions that return them
# (build_data.py); the list of markers becomes patterns with all that looks like them (build_markers.py, which needs the
# package confusable-homoglyphs).
#
#   build_sql.sh [OUT]     OUT defaults to .local/build
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
out=${1:-.local/build}
mkdir -p "$out"

die() { echo "build_sql: $*" >&2; exit 1; }
[ -f sql/contents.sql ] && [ -f sql/preamble.sql ] || die "sql/contents.sql or sql/preamble.sql lacks"

# sql/contents.sql is the table of contents; the preamble always comes first, migrations right after it.
mapfile -t code < <(sed -n 's/^[[:space:]]*\\ir[[:space:]]\{1,\}\([^[:space:]]*\).*/\1/p' sql/contents.sql | grep -vx preamble.sql)
for file in "${code[@]}"; do [ -f "sql/$file" ] || die "sql/contents.sql names sql/$file, which lacks"; done
for path in sql/*.sql sql/*/*.sql; do
  file=${path#sql/}
  case $file in contents.sql | preamble.sql) continue ;; esac
  [[ " ${code[*]} " == *" $file "* ]] || die "$path is not named in sql/contents.sql"
done
for path in sql/data/*; do
  case $path in *.csv | */README.md) ;; *) die "$path is no table (.csv)" ;; esac
done
if grep -nE '^[[:space:]]*\\(i|ir|include|include_relative)[[:space:]]' migrations/*.sql sql/preamble.sql "${code[@]/#/sql/}"; then
  die "only sql/contents.sql may include files"
fi

# A Python that has the package: asked for, of the checkout, of an image, of the system.
python=
for candidate in "${PG_MEMOIR_PYTHON:-}" .local/venv/bin/python "${PG_MEMOIR_STATE:-.local}/venv/bin/python" python3; do
  if [ -n "$candidate" ] && "$candidate" -c 'import confusable_homoglyphs' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || die "no Python here has the package confusable-homoglyphs: run scripts/setup.sh, or install it"

version=$(sed -n "s/^__version__ *= *[\"']\([^\"']*\)[\"'].*/\1/p" client/pg_memoir/__init__.py 2>/dev/null || true)

header() { printf '\n-- %s %s\n' "$1" "$(printf '%*s' $((115 - ${#1})) '' | tr ' ' -)"; }

# migration FILE: runs it unless it has run; the text of one that has must not have changed.
migration() {
  local name sha
  name=$(basename "$1" .sql)
  case $name in *[!a-z0-9_]*) die "$1: only a-z, 0-9 and _ in the name of a migration" ;; esac
  sha=$(sha256sum "$1"); sha=${sha%% *}
  header "$1"
  cat <<SQL
select coalesce(max(sha256), '') = '' as _is_new, coalesce(max(sha256) <> '$sha', false) as _has_changed
from _memoir.schema_migrations where name = '$name' \\gset
\\if :_has_changed
do \$\$ begin
  raise exception 'migration $name was applied with another text than this file has'
    using hint = 'applied migrations are frozen; put the change into a new one';
end \$\$;
\\endif
\\if :_is_new
SQL
  cat "$1"
  printf "\ninsert into _memoir.schema_migrations (name, sha256) values ('%s', '%s');\n\\\\endif\n" "$name" "$sha"
}

# The data as functions: tables, rules, markers, lists of all languages.
data() {
  "$python" scripts/build_data.py tables
  header sql/data/markers.csv
  "$python" scripts/build_markers.py sql/data/markers.csv
  header 'plpython/pg_memoir_language/data/*.toml'
  "$python" scripts/build_data.py lists
}

build() {
  cat <<SQL
-- pg_memoir ${version:-unversioned}: installs or upgrades, in one transaction:
--     psql -X -1 -v ON_ERROR_STOP=1 -f pg_memoir.sql
-- Then, each on its own: call memoir.setup(); call memoir.ensure_partitions();
-- Built by scripts/build_sql.sh; edit the sources.
\\set ON_ERROR_STOP on
\\set memoir_version '${version:-unversioned}'
savepoint needs_psql_option_1;          -- fails unless the whole file runs as one transaction (psql -1)
release savepoint needs_psql_option_1;
SQL
  header sql/preamble.sql; cat sql/preamble.sql
  for path in migrations/*.sql; do [ ! -f "$path" ] || migration "$path"; done
  printf '%s\n' "$generated"
  for file in "${code[@]}"; do header "sql/$file"; cat "sql/$file"; done
}

# put NAME: standard input becomes that file, if it differs.
put() {
  local new; new=$(mktemp "$out/.$1.XXXXXX")
  cat >"$new"; chmod 644 "$new"
  if cmp -s "$new" "$out/$1"; then rm "$new"; else mv "$new" "$out/$1"; fi
}

generated=$(data)                        # first: what is wrong with it ends the build here
build | put pg_memoir.sql
if [ -f plpython/functions.sql ]; then
  { printf '%s\n' "-- pg_memoir ${version:-unversioned}: the PL/Python functions, on top of pg_memoir.sql, as superuser:" \
      '--     psql -X -1 -v ON_ERROR_STOP=1 -f pg_memoir_plpython.sql' '\set ON_ERROR_STOP on' ''; cat plpython/functions.sql; } |
    put pg_memoir_plpython.sql
else
  rm -f "$out/pg_memoir_plpython.sql"
fi
