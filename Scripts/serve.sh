#!/usr/bin/env bash
# A sample tile server and tileproxy in front of it, both on this machine, until Ctrl-C.
#
#   serve.sh              serves and says where to look
#   serve.sh COMMAND…     serves, runs the command with TILEPROXY_URL set, and stops
#
# PORT chooses the proxy's port (8080; with a command a free one), LEAFLET where the page gets Leaflet from, PUBLIC_URL
# how clients reach the proxy, SHARED the bucket that it shares with others, ARCHIVE a file of tiles to show too.
set -euo pipefail
export TILECACHE_TOOLS=1 SWIFT_DETERMINISTIC_HASHING=1
cd "$(dirname "$0")/.."
root=$PWD
port=${PORT:-$([ $# = 0 ] && echo 8080 || echo 0)}

scratch=${SCRATCH:-.build}
configuration=${CONFIGURATION:-release}
# shellcheck disable=SC2086 # flags of `make serve`
[ -n "${NO_BUILD:-}" ] || swift build -c "$configuration" --product tileproxy --scratch-path "$scratch" ${CHECKS:-} >&2
bin=$(swift build -c "$configuration" --scratch-path "$scratch" --show-bin-path)

work=$(mktemp -d)
cache=${CACHE:-$work/cache}
origin="" proxy=""
finish() {
    trap '' INT TERM
    [ -z "$proxy" ] || { kill "$proxy" 2>/dev/null || true; wait "$proxy" 2>/dev/null || true; }
    [ -z "$origin" ] || { kill "$origin" 2>/dev/null || true; wait "$origin" 2>/dev/null || true; }
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 0' INT TERM

wait_for() {
    for _ in $(seq 1 200); do
        "$@" && return 0
        kill -0 "$origin" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/proxy.log" >&2 2>/dev/null || true
    echo "serve: it did not start: $*" >&2
    exit 1
}

python3 Scripts/sample-origin.py "$root/Sample/world" --outlines "$root/Sample/outlines" --port-file "$work/port" --max-age "${MAX_AGE:-20}" &
origin=$!
wait_for test -s "$work/port"
origin_port=$(cat "$work/port")

cat >"$work/tileproxy.yaml" <<YAML
cache: $cache
${LEAFLET:+leaflet: $LEAFLET}
${PUBLIC_URL:+publicURL: $PUBLIC_URL}
${SHARED:+shared: {s3: "$SHARED", timeout: 1s\}}
listen: 127.0.0.1:$port
capacity: 64MiB
sources:
  world:
    title: World
    template: http://127.0.0.1:$origin_port/{z}/{x}/{y}.png
    zooms: 0-5
    attribution: Made with Natural Earth
  gaps:
    title: World with gaps
    template: http://127.0.0.1:$origin_port/gap/{z}/{x}/{y}.png
    zooms: 0-5
    attribution: Made with Natural Earth
  folder:
    title: Folder
    template: $root/Sample/world/{z}/{x}/{y}.png
    zooms: 0-5
    attribution: Made with Natural Earth
  outlines:
    title: Outlines
    template: http://127.0.0.1:$origin_port/outlines/{z}/{x}/{y}.pbf
    zooms: 0-2
    attribution: Made with Natural Earth
${ARCHIVE:+  archive: {title: Archive, template: $ARCHIVE\}}
  deep:
    title: World, overzoomed
    template: http://127.0.0.1:$origin_port/{z}/{x}/{y}.png
    zooms: 0-5
    overzoom: 3
    attribution: Made with Natural Earth
YAML
"$bin/tileproxy" serve --config "$work/tileproxy.yaml" 2>"$work/proxy.log" &
proxy=$!
wait_for grep -q listening "$work/proxy.log"
url=http://127.0.0.1:$(grep -o '127.0.0.1:[0-9]*' "$work/proxy.log" | head -1 | cut -d: -f2)

if [ $# -gt 0 ]; then
    TILEPROXY_URL=$url TILEPROXY_LOG=$work/proxy.log "$@"
    exit
fi
cat <<TEXT

  map and figures   $url/
  a tile            $url/tiles/world/3/4/2.png
  TileJSON          $url/tiles/world.json
  Prometheus        $url/_tileproxy/metrics

Tiles are fresh for ${MAX_AGE:-20} seconds, so that the page shows them turn stale and be confirmed. Ctrl-C stops.
TEXT
wait "$proxy"
