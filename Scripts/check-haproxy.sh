#!/usr/bin/env bash
# Runs tileproxy behind HAProxy (PROXY protocol, versions 1 and 2, with and without TLS, by ports and by Unix sockets), behind nginx by a
# Unix socket, and with curl. Skips the parts whose programs are not there. HAPROXY names a program, NO_BUILD=1 takes tileproxy as it is, and
# TILEPROXY names one.
set -euo pipefail
export TILECACHE_TOOLS=1 PYTHONDONTWRITEBYTECODE=1
cd "$(dirname "$0")/.."
haproxy=${HAPROXY:-$(command -v haproxy || command -v /usr/sbin/haproxy || true)}
if [ -z "$haproxy" ] || ! command -v openssl >/dev/null 2>&1; then
    echo "check-haproxy: skipped, there is no haproxy or no openssl here (Debian: apt-get install haproxy openssl)"
    exit 0
fi
. Scripts/tools.sh
find_tileproxy
python3 Scripts/check-haproxy.py "$TILEPROXY" "$haproxy"
