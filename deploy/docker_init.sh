#!/usr/bin/env bash
# In the container image: runs once, when the official entry point makes the database, and installs pg_memoir into it.
set -euo pipefail
dsn="host=/var/run/postgresql user=$POSTGRES_USER dbname=$POSTGRES_DB"
"$PG_MEMOIR_STATE/server_settings.sh" >>"$PGDATA/postgresql.conf"
# pg_cron works in one database, which only a start can name.
psql -X -q -v ON_ERROR_STOP=1 -v name="$POSTGRES_DB" "$dsn" <<<"alter system set cron.database_name = :'name'"
pg_ctl restart -D "$PGDATA" -m fast -w -s
"$PG_MEMOIR_STATE/install.sh" "$PG_MEMOIR_STATE/build" "$dsn" /var/run/postgresql/pg_memoir/socket
