#!/usr/bin/env bash
# Builds pgvector for PostgreSQL MAJOR from the source package of a newer release of this distribution and installs it
# beside the server's other extensions.  As root:  build_pgvector.sh MAJOR MINIMUM_VERSION
#
# The machine's own apt sources are reused with the suite changed, in a private apt state: neither its configuration nor
# its package lists change. The server headers are unpacked privately too (their package would pull in all of clang).
set -euo pipefail
major=${1:?major version of PostgreSQL}; minimum=${2:?least version of pgvector}
. /etc/os-release
pg_config=/usr/lib/postgresql/$major/bin/pg_config
codename=${VERSION_CODENAME:?no VERSION_CODENAME in /etc/os-release}

fail() { echo "pgvector: $*" >&2; exit 1; }

# Newer releases to try, nearest first.
case ${ID:-}:${ID_LIKE:-} in
  debian:*) newer="trixie forky sid" ;;
  ubuntu:*) newer="plucky questing resolute" ;;
  *) fail "don't know which release of ${PRETTY_NAME:-this system} carries pgvector >= $minimum; install it for PostgreSQL $major by hand" ;;
esac

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
chmod 755 "$work"; mkdir -p "$work"/{lists/partial,cache/archives/partial,headers,src}

# write_sources SUITE: the archives that this release comes from, as sources of SUITE.
write_sources() {
  apt-get indextargets --format "deb-src [signed-by=\$(SIGNED_BY)] \$(REPO_URI) $1 \$(COMPONENT)" \
    'Created-By: Packages' "Codename: $codename" | sed 's/ \[signed-by=\$(SIGNED_BY)\]//' | sort -u >"$work/list"
  [ -s "$work/list" ]
}

private_apt() {
  apt-get -q -o Dir::Etc::sourcelist="$work/list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

fetch_source() {
  local suite version
  for suite in $newer; do
    [ "$suite" != "$codename" ] || continue
    write_sources "$suite" || fail "no apt source of $codename found to derive the one of $suite from"
    private_apt update >"$work/log" 2>&1 || true           # a source that lacks this suite is no reason to give up
    version=$(private_apt --print-uris source --download-only --tar-only pgvector 2>/dev/null |
              sed -n 's/.* pgvector_\([0-9][^ ]*\)\.orig\.tar.*/\1/p' | head -n1)
    [ -n "$version" ] && dpkg --compare-versions "$version" ge "$minimum" || continue
    echo "pgvector: taking $version from $suite" >&2
    (cd "$work/src" && private_apt source --download-only --tar-only pgvector >>"$work/log" 2>&1) && return
  done
  tail -n5 "$work/log" >&2
  fail "no source package >= $minimum found in: $newer"
}

fetch_source
tar -C "$work/src" --strip-components=1 -xf "$work"/src/pgvector_*.orig.tar.*
(cd "$work" && apt-get -q -o APT::Sandbox::User=root download "postgresql-server-dev-$major" libpq-dev >>"$work/log" 2>&1) ||
  { tail -n5 "$work/log" >&2; fail "can't download the headers of PostgreSQL $major"; }
for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$work/headers"; done

# OPTFLAGS empty: code for any processor of this architecture, an image may run elsewhere (pgvector picks at run time).
include=$work/headers/usr/include/postgresql
make -s -C "$work/src" -j2 PG_CONFIG="$pg_config" OPTFLAGS="" with_llvm=no PG_CPPFLAGS="-I$include/$major/server -I$include" all >>"$work/log" 2>&1 &&
  make -s -C "$work/src" PG_CONFIG="$pg_config" with_llvm=no install >>"$work/log" 2>&1 ||
  { tail -n20 "$work/log" >&2; fail "the build failed"; }
