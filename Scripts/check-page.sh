#!/usr/bin/env bash
# Opens the page in a real browser without a window: switches layers, zooms, shades tiles by state, in light and dark, on
# a desk and on a phone; fails on errors in the console. Skips where there is no Chromium. PICTURES=folder keeps pictures.
set -euo pipefail
cd "$(dirname "$0")/.."
browser=""
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        browser=$(command -v "$name")
        break
    fi
done
if [ -z "$browser" ]; then
    echo "check-page: skipped, there is no chromium here (Debian: apt-get install chromium libjs-leaflet)"
    exit 0
fi
Scripts/serve.sh python3 Scripts/check-page.py "$browser"
LEAFLET=network NO_BUILD=1 Scripts/serve.sh python3 Scripts/check-page.py "$browser" network
