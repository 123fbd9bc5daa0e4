#!/usr/bin/env bash
# Installs what pg_memoir lacks on this machine: PostgreSQL with contrib, PL/Python, pg_cron and pgvector, and a Python
# environment. Debian 12, 13, Ubuntu 24.04 and the official PostgreSQL image; as root or with sudo. Running it again when
# nothing lacks takes no time.
#
#   setup.sh             everything that make demo, test and bench need
#   setup.sh --server    the server's side only, without client, tests and torch (container images)
#   setup.sh --acceptance  what make acceptance needs beside that: a browser, programs of npm
#
# PG_MAJOR picks the PostgreSQL version; otherwise the newest installed one, else the distribution's.
. "$(dirname "$0")/common.sh"
. "$ROOT/scripts/setup_python.sh"

server_only= acceptance=
case ${1:-} in
  '') ;;
  --server) server_only=1 ;;
  --acceptance) acceptance=1 ;;
  *) die "usage: setup.sh [--server | --acceptance]" ;;
esac

log=$(mktemp "${TMPDIR:-/tmp}/pg_memoir-setup.XXXXXX")
guarded=
finish() {
  local code=$?
  [ -z "$guarded" ] || guard off || true
  if [ "$code" = 0 ] || [ ! -s "$log" ]; then rm -f "$log"; else say "the full output of the failed step is in $log"; fi
}
trap finish EXIT
trap 'exit 130' INT TERM

# apt ----------------------------------------------------------------------------------------------------------------

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 LC_ALL=C apt-get -y -q -o DPkg::Lock::Timeout=600 \
    -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@"
}

updated=
update_lists() {
  [ -z "$updated" ] && can_root || return 0
  say "reading the package lists"
  # Another apt at work: the lists' lock has no timeout of its own.
  apt_get update >>"$log" 2>&1 || { sleep 20; apt_get update >>"$log" 2>&1; } || warn "apt-get update failed, trying with the lists there are"
  updated=1
}

candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v '(none)' || true; }

# available PACKAGE: can apt install it? Reads the lists anew before saying no.
available() {
  [ -n "$(candidate "$1")" ] && return
  update_lists
  [ -n "$(candidate "$1")" ]
}

# A package that must match the server: take the installed server's version while apt still has it, so that installing a
# language does not upgrade the server underneath a running cluster.
matching() {
  local have; have=$(dpkg-query -W -f='${Version}' "postgresql-$PG" 2>/dev/null || true)
  if [ -n "$have" ] && LC_ALL=C apt-cache madison "$1" | awk '{print $3}' | grep -qxF -- "$have"; then echo "$1=$have"; else echo "$1"; fi
}

# guard on|off: while packages are installed no system cluster is made, started, stopped or restarted; both files go away
# again afterwards. One left by a killed run is known by its mark and removed with the next.
guard() {
  [ "$1" = off ] || guarded=1
  as_root sh -s "$1" <<'SH'
conf=/etc/postgresql-common/createcluster.d/zz-pg_memoir.conf
policy=/usr/sbin/policy-rc.d; saved=$policy.pg_memoir-saved
if [ "$1" = on ]; then
  mkdir -p "${conf%/*}"; echo 'create_main_cluster = false' >"$conf"
  if [ ! -e "$policy" ] || { ! grep -q 'pg_memoir set-up' "$policy" && { "$policy" postgresql start >/dev/null 2>&1; [ $? != 101 ]; }; }; then
    [ ! -e "$policy" ] || mv "$policy" "$saved"
    cat >"$policy" <<'POLICY'
#!/bin/sh
# pg_memoir set-up: leaves clusters of the system alone while packages are installed; removed afterwards
case "$1" in postgresql*|pgbouncer*) exit 101 ;; esac
[ ! -x "$0.pg_memoir-saved" ] || exec "$0.pg_memoir-saved" "$@"
exit 0
POLICY
    chmod 755 "$policy"
  fi
else
  rm -f "$conf"; rmdir "${conf%/*}" 2>/dev/null
  if grep -q 'pg_memoir set-up' "$policy" 2>/dev/null; then rm -f "$policy"; [ ! -e "$saved" ] || mv "$saved" "$policy"; fi
  true
fi
SH
  [ "$1" = on ] || guarded=
}

apt_install() {
  command -v apt-get >/dev/null || die "these packages lack, and this script can install them with apt only: $*"
  can_root || die "these packages lack, and installing them needs root or sudo: $*"
  step 1 "installing $*$(is_root || echo ' (sudo may ask for your password)')"
  guard on
  local show='s/^\(Need to get .*\|Setting up [^ ]*\).*/\1/p'
  progress "$log" "$show" apt_get install --no-install-recommends "$@" || {
    update_lists                                         # lists too old: the files they name are gone
    progress "$log" "$show" apt_get install --no-install-recommends "$@"
  } || { grep -E '^(E:|W:|dpkg:)' "$log" | tail -n10 >&2; die "apt could not install: $*"; }
  guard off
}

# What the machine has --------------------------------------------------------------------------------------------------

at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }
pgvector_version() { sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" "$PGSHARE/extension/vector.control" 2>/dev/null || true; }

has_server() { [ -x "$PGBIN/postgres" ] && [ -x "$PGBIN/psql" ]; }
has_pgvector() { at_least "$(pgvector_version)" "$MIN_PGVECTOR"; }

# What was found before that cannot be had here.
gave_up=$STATE/stamp/unavailable
refused=()

python_ready() {
  local python; python=$(pl_python)
  "/usr/bin/${python:-python3}" -c 'import venv, ensurepip' 2>/dev/null
}

# The steps ---------------------------------------------------------------------------------------------------------------

choose_version() {
  local major; major=$(pick_major)
  if [ -z "$major" ]; then
    command -v apt-get >/dev/null || die "PostgreSQL >= $MIN_PG is not installed, and this script can install it with apt only"
    available postgresql || die "apt knows no package postgresql"
    major=$(LC_ALL=C apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n1)
  fi
  [ "${major:-0}" -ge "$MIN_PG" ] 2>/dev/null || die "PostgreSQL >= $MIN_PG is needed, this system offers ${major:-none}"
  set_paths "$major"
}

# optional FILE PACKAGE CONSEQUENCE: adds a package to install that has that file, or says what follows where there is none.
optional() {
  [ ! -e "$1" ] && ! grep -qsxF "$2" "$gave_up" || return 0
  if available "$2" && can_root; then packages+=("$(matching "$2")")
  else
    refused+=("$2")
    warn "can't install $2: $3"
  fi
}

install_packages() {
  local packages=() before after
  if ! has_server; then
    available "postgresql-$PG" || die "apt has no package postgresql-$PG"
    packages+=("postgresql-$PG")
  fi
  optional "$PGLIB/plpython3.so" "postgresql-plpython3-$PG" \
    "no embedding and exact token counts inside the database, the client does both"
  optional "$PGLIB/pg_cron.so" "postgresql-$PG-cron" \
    "maintenance jobs are not scheduled, run them from outside (memoir.run_job)"
  if [ -z "$server_only" ]; then
    optional "$PGSHARE/extension/plpgsql_check.control" "postgresql-$PG-plpgsql-check" "the test that looks for dead code is skipped"
    optional "$PGSHARE/extension/plproxy.control" "postgresql-$PG-plproxy" "the test of several servers is skipped"
    optional /usr/sbin/pgbouncer pgbouncer "the tests behind it are skipped"
  fi
  if ! has_pgvector; then
    [ -z "$(pgvector_version)" ] ||
      die "pgvector $(pgvector_version) is installed for PostgreSQL $PG, $MIN_PGVECTOR or later is needed: upgrade or remove it"
    if available "postgresql-$PG-pgvector" && at_least "$(candidate "postgresql-$PG-pgvector")" "$MIN_PGVECTOR"; then
      packages+=("postgresql-$PG-pgvector")
    elif ! { command -v make && echo '#include <stdio.h>' | gcc -E -; } >/dev/null 2>&1; then
      packages+=(gcc make libc6-dev)                     # for a build from source
    fi
  fi
  [ -x "$STATE/venv/bin/python" ] || python_ready || packages+=(python3 python3-venv)
  [ ${#packages[@]} -gt 0 ] || return 0

  before=$(dpkg-query -W -f='${Version}' "postgresql-$PG" 2>/dev/null || true)
  apt_install "${packages[@]}"
  # Not as a service: each test starts its own.
  case " ${packages[*]} " in *" pgbouncer "*) ! command -v systemctl >/dev/null || as_root systemctl disable -q pgbouncer || true ;; esac
  after=$(dpkg-query -W -f='${Version}' "postgresql-$PG" 2>/dev/null || true)
  if [ -n "$before" ] && [ "$before" != "$after" ]; then
    warn "apt upgraded the packages of PostgreSQL $PG from $before to $after; a cluster of the system that runs was not restarted"
  fi
}

check() {
  has_server && [ -f "$PGSHARE/extension/pg_trgm.control" ] || die "PostgreSQL $PG is not complete: no contrib modules in $PGSHARE"
  has_pgvector || die "pgvector $MIN_PGVECTOR or later is not there for PostgreSQL $PG"
  python_ready || [ -x "$STATE/venv/bin/python" ] || die "/usr/bin/$(pl_python) with venv is not there"
}

# A browser of the distribution, and what tests/node/package.json pins.
install_acceptance() {
  local packages=() want
  command -v chromedriver >/dev/null || packages+=(chromium chromium-driver fonts-dejavu-core)
  command -v npm >/dev/null || packages+=(npm)
  if [ ${#packages[@]} -gt 0 ]; then
    update_lists
    apt_install "${packages[@]}"
  fi
  want=$(fingerprint "$ROOT/tests/node/package.json")
  if stamped node "$want"; then return; fi
  step 4 "installing programs of npm"
  mkdir -p "$STATE/node"
  cp "$ROOT/tests/node/package.json" "$STATE/node/"
  (cd "$STATE/node" && npm install --no-audit --no-fund --no-package-lock) >>"$log" 2>&1 || {
    tail -n15 "$log" >&2; die "npm could not install what tests/node/package.json names"; }
  stamp node "$want"
}

[ -n "${PG_MEMOIR_LOCKED:-}" ] || take_lock
choose_version
install_packages
if ! has_pgvector; then
  can_root || die "pgvector is not installed for PostgreSQL $PG, and building it needs root or sudo"
  step 2 "building pgvector from the source package of a newer release"
  as_root bash "$ROOT/scripts/build_pgvector.sh" "$PG" "$MIN_PGVECTOR" || die "pgvector could not be built"
fi
check
prepare_state
for part in "${refused[@]+"${refused[@]}"}"; do echo "$part" >>"$gave_up"; done
setup_python "$server_only"
[ -z "$acceptance" ] || install_acceptance
