#!/usr/bin/env bash
# Speaks TLS and HTTP/2 with tileproxy by a library that is not its own: PyPI's h2, which is installed into .build-http2/.
# Skips where it is not to be had, or where there is no openssl.
# NO_BUILD=1 takes the program as it is; TILEPROXY names one.
set -euo pipefail
export TILECACHE_TOOLS=1 PYTHONDONTWRITEBYTECODE=1
cd "$(dirname "$0")/.."
if ! command -v openssl >/dev/null 2>&1; then
    echo "check-http2: skipped, there is no openssl here (Debian: apt-get install openssl)"
    exit 0
fi
. Scripts/tools.sh
python_with check-http2 .build-http2 h2 "h2>=4.1,<5"
find_tileproxy
"$python" Scripts/check-http2.py "$TILEPROXY"
