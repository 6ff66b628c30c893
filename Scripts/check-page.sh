#!/usr/bin/env bash
# Opens the page in a real browser without a window: vector tiles good and bad, switches layers, zooms, shades tiles by state, with mouse and
# keyboard, in light and dark, on a desk and on a phone; fails on errors in the console. Then looks at the figures of a bucket of
# a real S3 server, and does all that is different behind nginx, with the configuration of Docs/operations.md. Skips where there is
# no Chromium, and these parts where there is no such server or no nginx.
# PICTURES=folder keeps pictures; TILE_TEST_DATA=folder lets it look at a larger archive of vector tiles too.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
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
if [ ! -e /usr/share/javascript/leaflet ]; then
    echo "check-page: skipped, there is no Leaflet here (Debian: apt-get install libjs-leaflet)"
    exit 0
fi
archive=${TILE_TEST_DATA:-}/ne-world_z0-5_mvt-gzip.mbtiles
if [ -n "${TILE_TEST_DATA:-}" ] && [ -e "$archive" ]; then
    export ARCHIVE=$archive
fi
Scripts/serve.sh python3 Scripts/check-page.py "$browser"
export NO_BUILD=1
LEAFLET=network Scripts/serve.sh python3 Scripts/check-page.py "$browser" network
# shellcheck disable=SC2016 # the inner shell knows the server
Scripts/s3-server.py --if-available bash -c 'SHARED=$TILE_TEST_S3/$TILE_TEST_S3_BUCKET \
    AWS_ACCESS_KEY_ID=$TILE_TEST_S3_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$TILE_TEST_S3_SECRET_KEY \
    exec Scripts/serve.sh python3 Scripts/check-page.py "$0" shared' "$browser"

# nginx is in no ordinary user's PATH on Debian.
PATH=$PATH:/usr/sbin
if ! command -v nginx >/dev/null 2>&1; then
    echo "check-page: the page behind nginx is not checked, there is no nginx here (Debian: apt-get install nginx-light)"
    exit 0
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
PUBLIC_URL=https://tiles.example.org:$port Scripts/serve.sh python3 Scripts/check-nginx.py "$browser" "$port"
