#!/usr/bin/env bash
# Installs or upgrades pg_memoir in a database, as its superuser, from what build_sql.sh made. Also upgrades a running one.
#
#   install.sh BUILD DSN [EMBEDDER_SOCKET]
#
# BUILD: the folder with pg_memoir.sql. EMBEDDER_SOCKET: where the shared embedder shall answer, unless that is set already.
set -euo pipefail
build=${1:?folder of pg_memoir.sql}; dsn=${2:?connection string}; socket=${3:-}

run() { PGOPTIONS="-c client_min_messages=${level:-warning}" psql -X -q -o /dev/null -v ON_ERROR_STOP=1 "$@" "$dsn"; }
has() { [ "$(psql -X -Atqc "select 1 from pg_available_extensions where name = '$1'" "$dsn")" = 1 ]; }
preloaded() { psql -X -Atqc 'show shared_preload_libraries' "$dsn" | grep -qw "$1"; }

# PL/Python needs the Python that it was built with, and our packages there.
python_loads() {
  why=$(run -c 'begin' -c 'create extension if not exists plpython3u' \
    -c 'do language plpython3u $$import numpy, regex, pg_memoir_server.shim$$' -c 'rollback' 2>&1)
}
has_python_functions() {
  [ "$(psql -X -Atqc "select count(*) > 0 from pg_proc p join pg_language l on l.oid = p.prolang
    where l.lanname = 'plpython3u' and p.pronamespace = to_regnamespace('_memoir')" "$dsn")" = t ]
}

# pg_cron is made in one database, and works from there.
cron_is_here() {
  preloaded pg_cron &&
    [ "$(psql -X -Atqc 'show cron.database_name' "$dsn")" = "$(psql -X -Atqc 'select current_database()' "$dsn")" ]
}

if [ -f "$build/pg_memoir_plpython.sql" ] && has plpython3u && python_loads; then python_is_here=1
elif has_python_functions; then   # those of the earlier release would stay
  echo "install.sh: PL/Python can't load pg_memoir's packages, and has functions here that need them. Nothing was changed." \
    "Install the packages, or drop extension plpython3u cascade. ${why:-}" >&2; exit 1
fi

! has pg_stat_statements || run -c 'create extension if not exists pg_stat_statements'
! cron_is_here || run -c 'create extension if not exists pg_cron'
run -1 -v "modulus=${PG_MEMOIR_MODULUS:-8}" -f "$build/pg_memoir.sql"
run -c 'call memoir.setup()'
level=notice run -c 'call memoir.ensure_partitions(0)'   # of this month; the job makes the next ones
if [ -n "${python_is_here:-}" ]; then
  run -c 'create extension if not exists plpython3u'
  run -1 -f "$build/pg_memoir_plpython.sql"
  [ -z "$socket" ] || run -f - <<SQL
select memoir.set_setting(key, to_jsonb('$socket'::text))
from memoir.list_settings() where key = 'embedder_socket' and value = default_value;
select memoir.ensure_embedder();               -- not only when pg_cron's next minute comes
SQL
else
  echo "install.sh: PL/Python does not load pg_memoir's packages here: clients make recalls, and a worker reads turns" >&2
fi
if cron_is_here; then
  run -c 'call memoir.enable_jobs()'
elif preloaded pg_cron; then
  echo "install.sh: pg_cron works from database $(psql -X -Atqc 'show cron.database_name' "$dsn"), so nothing is scheduled here:" \
    "run pg-memoir worker --jobs, or set cron.database_name and install again" >&2
fi
