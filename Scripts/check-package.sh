#!/usr/bin/env bash
# Installs the package of dist/ in a new, minimal root of this distribution, where no Swift and no compiler is, and does there what a stranger
# does: installs, edits one line, browses; with a certificate over HTTP/2; imports, seeds and pulls with tilegc; upgrades, removes and
# purges. Then looks at what systemd and lintian say. Needs root and a mirror of Debian or Ubuntu; skips where there is no root or no
# debootstrap. SUITE names another release than this machine's, BASE a folder that debootstrap has made of it before, MIRROR a mirror.
set -euo pipefail
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
cd "$(dirname "$0")/.."

skip() {
    echo "check-package: skipped, $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "it needs root"
for tool in debootstrap curl openssl python3; do
    command -v "$tool" >/dev/null 2>&1 || skip "there is no $tool here (apt-get install debootstrap curl openssl python3)"
done
if [ -z "${IN_NAMESPACE:-}" ]; then
    unshare --mount true 2>/dev/null || skip "mounts of its own are not permitted"
    IN_NAMESPACE=1 exec unshare --mount "$0" "$@"
fi

shopt -s nullglob
packages=(dist/tileproxy_*_"$(dpkg --print-architecture)".deb)
archives=(dist/swift-tile-cache-*-linux-"$(dpkg --print-architecture)".tar.gz)
[ ${#packages[@]} = 1 ] && [ ${#archives[@]} = 1 ] || {
    echo "check-package: there is no package in dist/; make package makes it" >&2
    exit 1
}

work=$(mktemp -d)
root=$work/root
finish() {
    # shellcheck disable=SC2046 # a list of numbers
    kill $(jobs -p) 2>/dev/null || true
    wait || true
    umount "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT

ok() { echo "  ok   $1"; }
fail() {
    echo "  FAIL $1" >&2
    for log in "$work"/*.log; do sed "s|^|       $(basename "$log" .log): |" "$log" | tail -20 >&2; done
    exit 1
}
# Runs a command whose output is only of interest if it fails.
quietly() {
    "$@" >"$work/quiet.log" 2>&1 || fail "$*"
    rm "$work/quiet.log"
}
# The programs have ICU's data for English alone (Scripts/trim-icu.py), and run in any language.
environment=(/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=de_DE.UTF-8)
inside() { chroot "$root" "${environment[@]}" LC_ALL=C "$@"; }
as_user() { chroot --userspec=tileproxy:tileproxy "$root" "${environment[@]}" "$@"; }
wait_for() {
    for _ in $(seq 1200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "waited for two minutes for: $*"
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
codename=${SUITE:-$codename}
echo "check-package: a minimal root of $codename"
if [ -n "${BASE:-}" ]; then
    cp -a "$BASE" "$root"
else
    # shellcheck disable=SC2086 # no mirror is no argument
    quietly debootstrap --variant=minbase "$codename" "$root" ${MIRROR:-}
fi
mount -t proc proc "$root/proc"
echo '127.0.0.1 localhost' >"$root/etc/hosts" # debootstrap makes none
install -m 644 "${packages[0]}" "$root/tmp/tileproxy.deb"
cp -r Sample/world "$root/tmp/world"
tile=Sample/world/3/4/2.png

# ---- Install.
quietly inside apt-get install -y --no-install-recommends /tmp/tileproxy.deb
! inside sh -c 'command -v swift || command -v cc || ls -d /opt/swift' >/dev/null 2>&1 || fail "there is a compiler in the root"
for program in tilegc tileproxy; do
    inside ldd "/usr/bin/$program" >"$work/libraries"
    ! grep -E 'not found|swift|Foundation' "$work/libraries" || fail "$program needs what is not there"
    ! objdump -p "$root/usr/bin/$program" 2>/dev/null | grep -E 'RPATH|RUNPATH' || fail "$program looks for libraries elsewhere"
done
ok "installed; both programs find their libraries"
[ "$(inside stat -c '%U %G %a' /var/cache/tileproxy)" = "tileproxy tileproxy 750" ] || fail "the cache's folder"
[ -L "$root/etc/systemd/system/multi-user.target.wants/tileproxy.service" ] || fail "the unit is not enabled"
ok "user, cache folder and unit are there"

# ---- tilegc, as the user.
inside install -d -o tileproxy -g tileproxy /tmp/work
as_user tilegc import /tmp/work/cache /tmp/world --source world >"$work/import.log"
# The figures are those of README.md.
figures() { as_user tilegc stats "$1" --json | python3 -c 'import json, sys; all = json.load(sys.stdin); print(all["entries"], all["blobs"])'; }
[ "$(figures /tmp/work/cache)" = "1365 794" ] || fail "the figures of tilegc stats"
as_user tilegc export /tmp/work/cache /tmp/work/world.mbtiles --source world >"$work/export.log"
as_user tilegc verify /tmp/work/world.mbtiles >"$work/verify.log"
as_user tilegc publish /tmp/work/cache /tmp/work/set --source world >"$work/publish.log"
ok "tilegc imports, reports, exports MBTiles and publishes"

# ---- The stranger's story: one line of the configuration.
python3 Scripts/sample-origin.py Sample/world --port-file "$work/origin.port" --max-age 600 &
wait_for test -s "$work/origin.port"
# Where another server has port 8080, the check takes a free one; a stranger would do the same.
port=$(free_port)
sed -i "s|^\( *template:\).*|\1 http://127.0.0.1:$(cat "$work/origin.port")/{z}/{x}/{y}.png|; s|^\(listen: 127.0.0.1:\)8080|\1$port|" \
    "$root/etc/tileproxy/tileproxy.yaml"
# What the unit starts.
read -ra command < <(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/tileproxy.service")
serve() {
    # The program itself, not a shell that waits for it, is to get the signal.
    (exec chroot --userspec=tileproxy:tileproxy "$root" "${environment[@]}" "${command[@]}") 2>"$work/proxy.log" &
    proxy=$!
    wait_for sh -c "grep -q '] listening\$' '$work/proxy.log' || ! kill -0 $proxy"
    kill -0 "$proxy" 2>/dev/null || fail "tileproxy does not start"
}
stop() {
    kill -TERM "$proxy"
    wait "$proxy" || fail "status $? after SIGTERM"
}
# The tile by curl with these arguments: what Cache-Status says, the version of HTTP, and the bytes compared.
get() {
    answer=$(curl -sS --max-time 60 -o "$work/tile.png" -D "$work/head.log" -w '%{http_code} %{http_version}' "$@") || fail "curl $*"
    cmp -s "$work/tile.png" "$tile" || fail "other bytes than the origin's: $answer"
    answer="$answer $(sed -n 's/^cache-status: *//Ip' "$work/head.log" | tr -d '\r')"
}
serve
get "http://127.0.0.1:$port/tiles/map/3/4/2.png"
[[ $answer == "200 1.1 "*fwd=uri-miss* ]] || fail "no miss: $answer"
get "http://127.0.0.1:$port/tiles/map/3/4/2.png"
[[ $answer == "200 1.1 "*hit* ]] || fail "no hit: $answer"
curl -sS --max-time 60 -o "$work/page.html" "http://127.0.0.1:$port/" && grep -qi leaflet "$work/page.html" || fail "no page"
stop
ok "one edited line: a miss, a hit, the page, and an end in order at SIGTERM"

# ---- A certificate: HTTP/2 towards clients, https towards servers.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/key.pem" -out "$work/certificate.pem" -days 2 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
inside install -d /etc/tileproxy/tls
install -m 644 "$work/certificate.pem" "$root/etc/tileproxy/tls/fullchain.pem"
install -m 640 "$work/key.pem" "$root/etc/tileproxy/tls/privkey.pem"
inside chgrp tileproxy /etc/tileproxy/tls/privkey.pem
install -m 644 "$work/certificate.pem" "$root/usr/local/share/ca-certificates/check.crt"
quietly inside update-ca-certificates
cat >"$work/https.py" <<'PYTHON'
"""Serves a folder by https: https.py FOLDER CERTIFICATE KEY PORT-FILE"""
import functools, http.server, os, ssl, sys
folder, certificate, key, port_file = sys.argv[1:]
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
with open(port_file + ".part", "w") as file:
    file.write(str(server.server_port))
os.replace(port_file + ".part", port_file)
server.serve_forever()
PYTHON
python3 "$work/https.py" "$root/tmp" "$work/certificate.pem" "$work/key.pem" "$work/https.port" 2>"$work/https.log" &
https=$!
wait_for test -s "$work/https.port"
far=https://localhost:$(cat "$work/https.port")
tls_port=$(free_port)
cp "$root/etc/tileproxy/tileproxy.yaml" "$work/edited.yaml"
sed -i "s|^listen: .*|listen: [http://127.0.0.1:$port, https://127.0.0.1:$tls_port]|; s|^# \(tls:\)|\1|; s|^#\( *certificate:\)|\1|; s|^#\( *key:\)|\1|
    s|^\( *template:\).*|\1 $far/world/{z}/{x}/{y}.png|" "$root/etc/tileproxy/tileproxy.yaml"
inside rm -rf /var/cache/tileproxy
inside install -d -m 750 -o tileproxy -g tileproxy /var/cache/tileproxy
serve
get --http2 --cacert "$work/certificate.pem" "https://localhost:$tls_port/tiles/map/3/4/2.png"
[[ $answer == "200 2 "*fwd=uri-miss* ]] || fail "no miss by HTTP/2 from a server with https: $answer"
get --http2 --cacert "$work/certificate.pem" "https://localhost:$tls_port/tiles/map/3/4/2.png"
[[ $answer == "200 2 "*hit* ]] || fail "no hit by HTTP/2: $answer"
stop
ok "with a certificate: HTTP/2, and a source with https"
as_user tilegc seed /tmp/work/seeded --source world --url "$far/world/{z}/{x}/{y}.png" --bbox=-180,-85,180,85 --zoom 0-3 --user-agent check/1 \
    >"$work/seed.log" 2>&1 || fail "tilegc seed by https"
as_user tilegc pull "$far/work/set" /tmp/work/pulled --source world >"$work/pull.log" 2>&1 || fail "tilegc pull by https"
# A pull has one entry more: where it stands.
[[ $(figures /tmp/work/seeded) == "85 "* && $(figures /tmp/work/pulled) == "1366 795" ]] || fail "tiles of seed and pull"
ok "tilegc seeds and pulls by https"
kill "$https"
cp "$work/edited.yaml" "$root/etc/tileproxy/tileproxy.yaml"

# ---- The archive.
tar -xzf "${archives[0]}" -C "$root/opt" --strip-components=1
for program in tilegc tileproxy; do
    cmp -s "$root/opt/bin/$program" "$root/usr/bin/$program" || fail "another $program in the archive than in the package"
done
ok "the archive has the same programs"

# ---- Upgrade, removal, purge.
quietly inside dpkg --install /tmp/tileproxy.deb
cmp -s "$work/edited.yaml" "$root/etc/tileproxy/tileproxy.yaml" || fail "an upgrade has replaced the edited configuration"
quietly inside apt-get remove -y tileproxy
[ ! -e "$root/usr/bin/tileproxy" ] || fail "the program is still there"
[ -e "$root/var/cache/tileproxy/tilecache.json" ] && [ -e "$root/etc/tileproxy/tileproxy.yaml" ] || fail "a removal took the cache or the configuration"
quietly inside apt-get install -y --no-install-recommends /tmp/tileproxy.deb
cmp -s "$work/edited.yaml" "$root/etc/tileproxy/tileproxy.yaml" || fail "the configuration was not taken up again"
as_user tilegc verify /var/cache/tileproxy >"$work/verify.log" || fail "the cache was not taken up again"
ok "an upgrade and a removal keep configuration and cache"

# ---- What others say of it.
quietly inside apt-get install -y --no-install-recommends systemd
inside systemd-analyze verify --man=no tileproxy.service >"$work/systemd.log" 2>&1 && [ ! -s "$work/systemd.log" ] || fail "systemd-analyze verify"
ok "systemd-analyze verify; $(inside systemd-analyze security --offline=yes tileproxy.service | tail -1 | tr -dc ' -~' | sed 's/^ *//')"
if command -v lintian >/dev/null 2>&1; then
    lintian --allow-root --fail-on error "${packages[0]}" >"$work/lintian.log" 2>&1 || fail "lintian"
    ok "lintian has no errors, and $(grep -c '^W: ' "$work/lintian.log" || true) warnings"
    sed 's/^/       /' "$work/lintian.log"
else
    echo "  skip lintian, which is not here (apt-get install lintian)"
fi

quietly inside apt-get purge -y tileproxy
for path in /var/cache/tileproxy /etc/tileproxy/tileproxy.yaml /etc/systemd/system/multi-user.target.wants/tileproxy.service; do
    [ ! -e "$root$path" ] && [ ! -L "$root$path" ] || fail "a purge leaves $path"
done
ok "a purge takes all of it"
echo "check-package: ok"
