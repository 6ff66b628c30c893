#!/usr/bin/env bash
# Compares what tileproxy makes of structured fields with PyPI's http-sf, which is installed into .build-fields/; skips where it is not to be had.
# Arguments: how many fields, and a seed. NO_BUILD=1 takes the program as it is; TILEPROXY names one.
set -euo pipefail
export TILECACHE_TOOLS=1 PYTHONDONTWRITEBYTECODE=1
cd "$(dirname "$0")/.."
. Scripts/tools.sh
python_with check-fields .build-fields http_sf "http-sf>=1,<2"
find_tileproxy
"$python" Scripts/check-fields.py "$TILEPROXY" "$@"
