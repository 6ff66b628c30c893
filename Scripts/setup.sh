#!/usr/bin/env bash
# Installs what the build and the checks need and this machine lacks. Running it again does nothing.
#
#   setup.sh            for make build and make test
#   setup.sh package    for make package too
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

if ! have swift; then
    echo "setup: no swift on the PATH; install Swift 6.2 or later from https://www.swift.org/install" >&2
    exit 1
fi

if [ "$(uname)" = Darwin ]; then
    # CryptoKit takes libcrypto's place there; the compiler comes with Xcode.
    missing=""
    for tool in jq spin; do have "$tool" || missing="$missing $tool"; done
    if [ -n "$missing" ]; then
        echo "setup: please run: brew install$missing" >&2
        exit 1
    fi
    exit 0
fi

packages=""
need() { packages="$packages $1"; }
have pkg-config || need pkg-config
have jq || need jq
have spin || need spin
{ have gcc && have cpp; } || need gcc
have make || need make
have python3 || need python3
if ! have pkg-config || ! pkg-config --exists libcrypto; then need libssl-dev; fi
if ! have pkg-config || ! pkg-config --exists zlib; then need zlib1g-dev; fi
if ! have pkg-config || ! pkg-config --exists sqlite3; then need libsqlite3-dev; fi
if ! have pkg-config || ! pkg-config --exists libpng; then need libpng-dev; fi
# Debian's and Ubuntu's names for libjpeg-turbo differ; this one names whichever there is.
if ! have pkg-config || ! pkg-config --exists libjpeg; then need libjpeg-dev; fi
if ! have pkg-config || ! pkg-config --exists libwebp; then need libwebp-dev; fi
if [ "${1:-}" = package ]; then
    have git || need git
    have dpkg-shlibdeps || need dpkg-dev
    # Foundation's URLSession, linked in, wants it.
    if ! have pkg-config || ! pkg-config --exists libcurl; then need libcurl4-openssl-dev; fi
fi
[ -n "$packages" ] || exit 0

if ! have apt-get; then
    echo "setup: please install, with this system's package manager:$packages" >&2
    exit 1
fi
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
echo "setup: installing$packages" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    # shellcheck disable=SC2086 # a list of package names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >"$log" 2>&1
}
# The package lists may be absent or old, so fetch them only where the first try fails.
install || { as_root apt-get update >"$log" 2>&1 && install; } || {
    cat "$log" >&2
    echo "setup: apt-get could not install$packages" >&2
    exit 1
}
