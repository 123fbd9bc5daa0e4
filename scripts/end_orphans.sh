#!/usr/bin/env bash
# Ends what a postmaster left behind that was killed: a backend that computes notices its death only when it next waits, and as
# long as one lives it keeps the shared memory, so that the server does not start again. Ends only processes that work in the
# data directory while no postmaster does, and says for what it waits. As root or the server's user.
#
#   end_orphans.sh DATA_DIRECTORY
set -euo pipefail
data=$(cd "${1:?data directory}" && pwd -P)

say() { printf '[pg_memoir] %s\n' "$*" >&2; }

# Processes whose working directory it is: PostgreSQL's own, and nobody else's.
at_work() {
  local folder
  for folder in /proc/[0-9]*; do
    [ "$(readlink "$folder/cwd" 2>/dev/null)" = "$data" ] || continue
    case $(readlink "$folder/exe" 2>/dev/null) in */postgres | */postgres\ \(deleted\)) echo "${folder#/proc/}" ;; esac
  done
}

processes=$(at_work | tr '\n' ' ')
[ -n "${processes// /}" ] || exit 0
case " $processes" in *" $(head -n1 "$data/postmaster.pid" 2>/dev/null) "*) exit 0 ;; esac   # a postmaster lives

say "ending ${processes}left behind in $data by a server that was killed"
kill -QUIT $processes 2>/dev/null || true
for ((tenth = 0; tenth < 300; tenth++)); do
  processes=$(at_work | tr '\n' ' ')
  [ -n "${processes// /}" ] || exit 0
  [ $((tenth % 50)) != 49 ] || { say "waiting for $processes"; kill -KILL $processes 2>/dev/null || true; }
  sleep 0.1
done
say "still there: $processes"
exit 1
