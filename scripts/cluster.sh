#!/usr/bin/env bash
# The private PostgreSQL cluster of a checkout: in its state folder, on its own Unix socket, without a network port, apart
# from every cluster of the system.
#
#   cluster.sh up        sets up what lacks, starts the server, installs or upgrades pg_memoir; quick when nothing changed
#   cluster.sh dsn       prints the connection string and nothing else
#   cluster.sh env       prints settings for the tests, to be evaluated by a shell
#   cluster.sh psql ...  opens psql
#   cluster.sh reset     drops the database and installs anew
#   cluster.sh down      stops the server
#   cluster.sh clean     stops it and deletes everything private: database, environment, logs
. "$(dirname "$0")/common.sh"

DATABASE=memoir
export PG_MEMOIR_STEPS=7                     # those of setup.sh, and three of ours
PORT=5499                                    # only part of the socket's name; nothing listens on the network
SOCKET_DIR=/tmp/pgm-$KEY                     # short: a socket's path ends at 107 bytes
EMBEDDER_SOCKET=$SOCKET_DIR/embedder/socket  # its own private folder
DSN="host=$SOCKET_DIR port=$PORT dbname=$DATABASE user=postgres"
ADMIN_DSN=${DSN/dbname=$DATABASE/dbname=postgres}

run_sql() { PGOPTIONS='-c client_min_messages=warning' "$PGBIN/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }

# Also tells a server that is up but has no such database yet from one that is down.
server_is_up() { as_server "$PGBIN/pg_ctl" status -D "$STATE/pgdata" >/dev/null 2>&1 && ! is_zombie; }

# A killed server stays a zombie where process 1 does not reap, as in many containers. PostgreSQL takes it for running.
is_zombie() { grep -qs '^State:[[:space:]]*Z' "/proc/$(sed -n 1p "$STATE/pgdata/postmaster.pid" 2>/dev/null)/status"; }

# The server ---------------------------------------------------------------------------------------------------------

server_config() {
  local preload=pg_stat_statements
  [ ! -f "$PGLIB/pg_cron.so" ] || preload+=,pg_cron
  cat <<CONF
# Made by scripts/cluster.sh, which overwrites it. Own settings: any later file in this folder.
listen_addresses = ''
port = $PORT
unix_socket_directories = '$SOCKET_DIR'
unix_socket_permissions = 0700
cluster_name = 'pg_memoir $KEY'
timezone = 'UTC'
shared_preload_libraries = '$preload'
max_connections = 100
log_line_prefix = '%m [%p] %u@%d '
CONF
  bash "$ROOT/deploy/server_settings.sh"
  [ ! -d "$ROOT/client" ] || echo 'shared_buffers = 256MB               # of a checkout'
  [ ! -f "$PGLIB/pg_cron.so" ] || cat <<CONF
cron.database_name = '$DATABASE'
cron.use_background_workers = on     # no connections, hence no passwords
CONF
}

# The server's whole environment. One thread: numeric libraries would start one per core in every backend.
server_env() {
  printf '%s\n' PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "HOME=$STATE/home" \
    "PYTHONPATH=$(server_python_path)" "PYTHONPYCACHEPREFIX=$STATE/home/pycache" "PG_MEMOIR_PYTHON=$STATE/venv/bin/python" \
    {OMP,OPENBLAS,MKL}_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 {HF_HUB,ORT}_DISABLE_TELEMETRY=1
  [ -z "$BUNDLED" ] || printf '%s\n' "PG_MEMOIR_PYTHON=$PG_MEMOIR_PYTHON" "LD_LIBRARY_PATH=$BUNDLED/lib"
}

# make_private_dir PATH: of the server's user, closed to all others.
make_private_dir() {
  [ -d "$1" ] || install -d -m 0700 -o "$SERVER_USER" "$1"
  [ ! -L "$1" ] && [ "$(stat -c %U:%a "$1")" = "$SERVER_USER:700" ] || die "$1 is not a folder of $SERVER_USER alone; remove it"
}

init_cluster() {
  [ ! -f "$STATE/pgdata/PG_VERSION" ] || return 0
  step 5 "making a private PostgreSQL $PG cluster in $STATE/pgdata"
  rm -rf "$STATE/pgdata"; rm -f "$STATE"/stamp/{server,installed}
  make_private_dir "$STATE/pgdata"
  as_server "$PGBIN/initdb" -D "$STATE/pgdata" -U postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 --no-instructions \
    >"$STATE/log/initdb.log" 2>&1 || { tail -n15 "$STATE/log/initdb.log" >&2; die "initdb failed"; }
  as_server mkdir "$STATE/pgdata/conf.d"
  as_server sh -c 'echo "include_dir = '\''conf.d'\''" >>"$0"' "$STATE/pgdata/postgresql.conf"
}

stop_server() {
  server_is_up || return 0
  as_server "$PGBIN/pg_ctl" stop -D "$STATE/pgdata" -m fast -w -t 120 -s || die "the server does not stop"
}

start_server() {
  local want; want=$(server_config; server_env)
  make_private_dir "$SOCKET_DIR"
  if server_is_up; then
    if stamped server "$want"; then return; fi
    say "restarting the server with changed settings"
    stop_server
  fi
  step 6 "starting the server"
  ! is_zombie || rm -f "$STATE/pgdata/postmaster.pid" "$SOCKET_DIR/.s.PGSQL.$PORT.lock"
  bash "$ROOT/scripts/end_orphans.sh" "$STATE/pgdata" || die "what a killed server left behind does not end"
  make_private_dir "$STATE/home"
  server_config | as_server sh -c 'cat >"$0"' "$STATE/pgdata/conf.d/00-pg_memoir.conf"
  local vars; mapfile -t vars < <(server_env)
  install -d -m 0755 -o "$SERVER_USER" "$STATE/log/server"
  # 9: the lock of this run must not live on in the server
  as_server env -i "${vars[@]}" "$PGBIN/pg_ctl" start -D "$STATE/pgdata" -l "$STATE/log/server/postgresql.log" -w -t 120 -s \
    9<&- </dev/null || { tail -n15 "$STATE/log/server/postgresql.log" >&2; die "the server does not start"; }
  stamp server "$want"
}

# The product --------------------------------------------------------------------------------------------------------

install_product() {
  local want build=$STATE/build
  if [ -f "$ROOT/build/pg_memoir.sql" ]; then build=$ROOT/build       # built beforehand, in a wheel
  else "$ROOT/scripts/build_sql.sh" "$build" || die "the SQL could not be built"; fi
  want=$(fingerprint "$build"/*.sql)
  if stamped installed "$want" && [ "$(run_sql -At -c "select to_regnamespace('memoir') is not null" "$DSN" 2>/dev/null)" = t ]; then return; fi

  [ "$(run_sql -At -c "select count(*) from pg_database where datname = '$DATABASE'" "$ADMIN_DSN")" = 1 ] ||
    run_sql -c "create database $DATABASE" "$ADMIN_DSN"
  step 7 "installing pg_memoir into database $DATABASE"
  PATH="$PGBIN:$PATH" bash "$ROOT/scripts/install.sh" "$build" "$DSN" "$EMBEDDER_SOCKET" || die "the install failed"
  stamp installed "$want"
}

# An upgrade of the packages alone changes no SQL, and an embedder outlives it. Waits for that of these packages.
renew_embedder() {
  local nth
  for nth in {1..120}; do
    case $(run_sql -At -c "select case when to_regprocedure('_memoir.py_ensure_embedder(jsonb)') is not null
        then memoir.ensure_embedder() end" "$DSN" || true) in
      started | starting | restarted | 'backing off') sleep 0.5 ;;
      *) return ;;
    esac
  done
  say "the embedder of this release does not answer yet; the jobs start it again"
}

# Commands -----------------------------------------------------------------------------------------------------------

prepare_up() {
  take_lock
  local only=(); [ -d "$ROOT/client" ] || only=(--server)   # what a wheel brought along needs no tests
  [ -n "$BUNDLED" ] || PG_MEMOIR_LOCKED=1 bash "$ROOT/scripts/setup.sh" "${only[@]+"${only[@]}"}"
  prepare_state
  set_paths "$(pick_major)"
  [ "$PG" = "$(cat "$STATE/pgdata/PG_VERSION" 2>/dev/null || echo "$PG")" ] ||
    die "$STATE/pgdata is of another version than PostgreSQL $PG: start what made it, and move the data with pg_dump"
  init_cluster
  start_server
}

reset() {
  prepare_up
  run_sql -c "drop database if exists $DATABASE with (force)" "$ADMIN_DSN"
  stop_server; start_server       # pg_cron's launcher ends with its database and comes back only with the server
  install_product
}

down() {
  id "$SERVER_USER" >/dev/null 2>&1 && [ -f "$STATE/pgdata/PG_VERSION" ] || return 0
  take_lock
  set_paths "$(cat "$STATE/pgdata/PG_VERSION")"
  STATE=$(cd "$STATE" && pwd -P)
  local own=("$STATE"/postgresql/*/.pg0/installation/*/bin)   # unpacked from a package that is uninstalled since
  if [ ! -x "$PGBIN/pg_ctl" ] && [ -x "${own[-1]}/pg_ctl" ]; then PGBIN=${own[-1]}; export LD_LIBRARY_PATH=${PGBIN%/bin}/lib; fi
  [ -x "$PGBIN/pg_ctl" ] || ! grep -qs postgres "/proc/$(head -n1 "$STATE/pgdata/postmaster.pid" 2>/dev/null)/comm" || is_zombie ||
    die "the server runs, and $PGBIN/pg_ctl to stop it is gone: end process $(head -n1 "$STATE/pgdata/postmaster.pid") first"
  stop_server
}

clean() {
  local link=$STATE target
  down
  target=$(readlink "$link" || true)
  case $target in */pg_memoir/"$KEY") rm -rf "$target" ;; esac
  rm -rf "$link" "$SOCKET_DIR"
}

find_psql() {
  set_paths "$(pick_major)"
  [ -x "$PGBIN/psql" ] || die "nothing is set up yet: make up"
}

case ${1:-} in
  up)
    prepare_up
    if [ -f "$STATE/stamp/installed" ]; then install_product; renew_embedder; else install_product; fi ;;
  dsn) echo "$DSN" ;;
  env)
    find_psql
    printf 'export PG_MEMOIR_DSN=%q PG_MEMOIR_BUILD=%q PG_MEMOIR_PGBIN=%q PG_MEMOIR_SERVER_USER=%q PG_MEMOIR_PYTHONPATH=%q PATH=%q:"$PATH"\n' \
      "$DSN" "$STATE/build" "$PGBIN" "$SERVER_USER" "$(server_python_path)" "$PGBIN"
    printf 'export ORT_DISABLE_TELEMETRY=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 TOKENIZERS_PARALLELISM=false\n' ;;
  psql) shift; find_psql; exec "$PGBIN/psql" "$DSN" "$@" ;;
  reset) reset ;;
  down) down ;;
  clean) clean ;;
  *) die "usage: cluster.sh up|dsn|env|psql|reset|down|clean" ;;
esac
