# shellcheck shell=bash
# Shared by the scripts in this folder: where things are, who runs them, how they talk. Source it, don't run it.
set -euo pipefail
umask 022
unset CDPATH

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
KEY=$(printf %s "${PG_MEMOIR_STATE:-$ROOT}" | sha256sum | cut -c1-8)   # tells checkouts on one machine apart
MIN_PG=15                                            # least PostgreSQL major
MIN_PGVECTOR=0.7.0                                   # halfvec

say() { printf '[pg_memoir] %s\n' "$*" >&2; }
warn() { printf '[pg_memoir] WARNING: %s\n' "$*" >&2; }
die() { printf '[pg_memoir] ERROR: %s\n' "$*" >&2; exit 1; }

# step NUMBER TEXT: where a set-up is, and since how many seconds. Steps that have nothing to do are not said.
export PG_MEMOIR_BEGUN=${PG_MEMOIR_BEGUN:-$EPOCHSECONDS} PG_MEMOIR_STEPS=${PG_MEMOIR_STEPS:-4}
here=
step() { here="step $1 of $PG_MEMOIR_STEPS"; say "$here, $((EPOCHSECONDS - PG_MEMOIR_BEGUN)) s: $2"; }

is_root() { [ "$EUID" = 0 ]; }

# The user who owns and runs the private server: PostgreSQL refuses root.
if is_root; then SERVER_USER=postgres; else SERVER_USER=$(id -un); fi

# can_root: may we become root? Asks for sudo's password when it needs one.
can_root() {
  is_root || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || sudo -v; }; }
}

# as_root COMMAND...: directly or through sudo.
as_root() {
  if is_root; then "$@"
  elif command -v sudo >/dev/null; then sudo -- "$@"
  else die "this needs root, and there is no sudo: $*"
  fi
}

# as_server COMMAND...: as the server's user, from a folder that everybody may enter.
as_server() (
  cd /
  if is_root; then setpriv --reuid="$SERVER_USER" --regid="$SERVER_USER" --init-groups -- "$@"; else "$@"; fi
)

# checkout_usable: can the private server work in the checkout? Its user must be able to read it (a home of mode 0700 is
# closed to it), PostgreSQL's paths end at 1024 bytes, and a Python search path is split at colons.
checkout_usable() {
  case $ROOT in *:*) return 1 ;; esac
  [ ${#ROOT} -lt 700 ] || return
  ! is_root || as_server test -r "$ROOT/scripts/common.sh" 2>/dev/null
}

# The state of a checkout is .local, a folder or, where the checkout is not usable, a link to one elsewhere.
# PG_MEMOIR_STATE puts it anywhere (a container image has no checkout to keep).
STATE=${PG_MEMOIR_STATE:-$ROOT/.local}
BUNDLED=${PG_MEMOIR_POSTGRES:-}      # the folder of a PostgreSQL that a Python package brought, with its own libraries

# prepare_state: creates the state folder and resolves STATE. Needs SERVER_USER to exist.
prepare_state() {
  local target
  if [ -z "${PG_MEMOIR_STATE:-}" ]; then
    target=$(readlink "$STATE" || true)
    case $target in */pg_memoir/"$KEY") ;; */pg_memoir/*) rm "$STATE"; target= ;; esac   # the link of a copied checkout
    if [ -z "$target" ] && ! checkout_usable; then
      [ ! -e "$STATE" ] || die "user $SERVER_USER can't work in $STATE any more: make clean, then start again"
      if is_root; then target=/var/lib/pg_memoir/$KEY; else target=${XDG_STATE_HOME:-$HOME/.local/state}/pg_memoir/$KEY; fi
      say "the private server can't work in $ROOT, its state goes to $target"
      ln -s "$target" "$STATE"
    fi
    [ -z "$target" ] || mkdir -p "$target"
  fi
  mkdir -p "$STATE/stamp" "$STATE/log"
  STATE=$(cd "$STATE" && pwd -P)
}

# server_code: the folder of our Python code that the server loads. server_python_path: its whole search path (PL/Python
# runs the system's interpreter, which knows nothing of the environment and reads no .pth files on PYTHONPATH).
server_code() {
  if [ -z "${PG_MEMOIR_STATE:-}" ] && checkout_usable; then echo "$ROOT/plpython"; else echo "$STATE/python"; fi
}
server_python_path() { echo "${PG_MEMOIR_PACKAGES:-$(server_code):$(echo "$STATE"/venv/lib/python3.*/site-packages)}"; }

# pick_major: prints the PostgreSQL major to use: asked for, brought by a package, used before, installed, or empty.
pick_major() {
  if [ -n "${PG_MAJOR:-}" ]; then echo "$PG_MAJOR"
  elif [ -n "$BUNDLED" ]; then "$BUNDLED/bin/pg_config" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/'
  elif [ -f "$STATE/pgdata/PG_VERSION" ]; then cat "$STATE/pgdata/PG_VERSION"
  else printf '%s\n' /usr/lib/postgresql/*/bin/postgres | awk -F/ -v least=$MIN_PG '$5 + 0 >= least { print $5 }' | sort -n | tail -n1
  fi
}

# set_paths MAJOR: folders of that server version.
set_paths() {
  PG=$1
  PGBIN=${BUNDLED:-/usr/lib/postgresql/$PG}/bin
  PGLIB=${BUNDLED:-/usr/lib/postgresql/$PG}/lib
  PGSHARE=/usr/share/postgresql/$PG
}

# pl_python: prints the interpreter whose library PL/Python links (python3.11, ...), empty without PL/Python.
pl_python() {
  [ -f "$PGLIB/plpython3.so" ] || return 0
  ldd "$PGLIB/plpython3.so" | sed -n 's/^[[:space:]]*lib\(python3\.[0-9]*\)\.so.*/\1/p' | head -n1
}

# progress LOG FILTER COMMAND...: runs it with its output in LOG, showing the lines that the sed filter prints, and a sign of
# life where it is silent.
progress() {
  local log=$1 filter=$2 line; shift 2
  "$@" 2>&1 | tee -a "$log" | sed -un "$filter" | while :; do
    if read -r -t 15 line; then printf '  %s\n' "$line"
    elif [ $? -gt 128 ]; then say "$here, $((EPOCHSECONDS - PG_MEMOIR_BEGUN)) s: still at it"   # 128 and more: nothing came in time
    else break
    fi
  done >&2
}

# stamp NAME VALUE notes how something was done last; stamped NAME VALUE: was it done so?
stamp() { printf '%s\n' "$2" >"$STATE/stamp/$1"; }
stamped() { [ "$(cat "$STATE/stamp/$1" 2>/dev/null)" = "$2" ]; }

# fingerprint FILE...: one hash over names and contents.
fingerprint() { { sha256sum "$@" 2>/dev/null || true; } | sha256sum | cut -c1-16; }

# Only one set-up or start at a time per checkout; the lock goes with the process.
take_lock() {
  exec 9<"$ROOT/scripts/common.sh"
  flock -n 9 || { say "another make is at work in this checkout, waiting"; flock 9; }
}
