#!/usr/bin/env bash
# Prints the settings of docs/guides/operations.md, as lines of postgresql.conf: memory by what this machine or container
# has. The private server and the container image use them.
set -euo pipefail
bytes=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  limit=$(cat "$file" 2>/dev/null || true)
  [[ ! $limit =~ ^[0-9]{1,18}$ ]] || bytes=$((limit < bytes ? limit : bytes))
done
mib=$((bytes / 1048576))

# between LEAST MOST VALUE
between() { echo $(($3 < $1 ? $1 : $3 > $2 ? $2 : $3)); }

cat <<CONF
shared_buffers = $(between 128 8192 $((mib / 4)))MB
effective_cache_size = $(between 256 1048576 $((mib * 3 / 4)))MB
work_mem = $(between 4 32 $((mib / 256)))MB
maintenance_work_mem = $(between 64 1024 $((mib / 16)))MB
max_worker_processes = 24            # pg_cron runs each job in a worker
max_locks_per_transaction = 256      # a user's tables have many partitions
max_wal_size = 2GB
wal_level = replica
hot_standby = on
max_wal_senders = 5
idle_in_transaction_session_timeout = 30s
autovacuum_naptime = 30s
jit = off                            # compiling costs more than any of our statements
CONF
