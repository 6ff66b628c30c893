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
python=python3
if ! "$python" -c "import h2" 2>/dev/null; then
    if [ ! -x .build-http2/bin/python ] && ! python3 -m venv .build-http2 2>/dev/null; then
        echo "check-http2: skipped, Python makes no environment here (Debian: apt-get install python3-venv)"
        exit 0
    fi
    python=.build-http2/bin/python
    if ! "$python" -c "import h2" 2>/dev/null && ! "$python" -m pip --quiet install "h2>=4.1,<5" 2>/dev/null; then
        echo "check-http2: skipped, PyPI's h2 cannot be installed here"
        exit 0
    fi
fi
if [ -z "${TILEPROXY:-}" ]; then
    scratch=${SCRATCH:-.build}
    [ -n "${NO_BUILD:-}" ] || swift build -c release --product tileproxy --scratch-path "$scratch" >&2
    TILEPROXY=$(swift build -c release --scratch-path "$scratch" --show-bin-path)/tileproxy
fi
"$python" Scripts/check-http2.py "$TILEPROXY"
