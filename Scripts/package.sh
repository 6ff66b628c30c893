#!/usr/bin/env bash
# Makes dist/tileproxy_VERSION_ARCH.deb and dist/swift-tile-cache-VERSION-linux-ARCH.tar.gz: tilegc and tileproxy with the Swift runtime linked
# in. Needs no root. The .deb depends on the system libraries of the distribution that it is made on, and is for it and its successors.
# SOURCE_DATE_EPOCH dates all files (default: the last commit), MAINTAINER is named in the .deb, NO_BUILD=1 takes the programs as they are.
set -euo pipefail
export TILECACHE_TOOLS=1 LC_ALL=C TZ=UTC
umask 022
cd "$(dirname "$0")/.."
root=$PWD

fail() {
    echo "package: $1" >&2
    exit 1
}
for tool in dpkg-deb dpkg-shlibdeps strip; do
    command -v "$tool" >/dev/null 2>&1 || fail "there is no $tool here (Debian, Ubuntu: apt-get install dpkg-dev binutils)"
done

version=$(sed -n 's/^ *package static let text = "\(.*\)"$/\1/p' Sources/TileStore/Support/LibraryVersion.swift)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "no version in Sources/TileStore/Support/LibraryVersion.swift"
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
maintainer=${MAINTAINER:-swift-tile-cache contributors <swift-tile-cache@localhost.invalid>}

scratch=${SCRATCH:-.build-package}
resources=$(swiftc -print-target-info | python3 -c 'import json, sys; print(json.load(sys.stdin)["paths"]["runtimeResourcePath"])')
mkdir -p "$scratch"
python3 Scripts/trim-icu.py "${resources}_static/linux/lib_FoundationICU.a" "$scratch/icu-data.o"
TILECACHE_ICU_DATA=$(readlink -f "$scratch")/icu-data.o
export TILECACHE_ICU_DATA
# Names of files in messages are relative, so that the programs do not depend on where they were built.
flags=(-c release --static-swift-stdlib --disable-local-rpath --scratch-path "$scratch" -debug-info-format none
    -Xswiftc -file-prefix-map -Xswiftc "$root=." -Xcc "-ffile-prefix-map=$root=.")
for program in tilegc tileproxy; do
    [ -n "${NO_BUILD:-}" ] || swift build "${flags[@]}" --product "$program"
done
bin=$(swift build "${flags[@]}" --show-bin-path)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in tilegc tileproxy; do
    strip --strip-unneeded --remove-section=.comment --remove-section=.note -o "$work/$program" "$bin/$program"
    echo "package: $program has $(stat -c %s "$work/$program") bytes"
    [ "$("$work/$program" --version)" = "$program $version" ] || fail "$program does not say that it is $version"
done

# The licences and notices of what is linked in.
{
    for folder in "$scratch"/checkouts/*/; do
        for file in "$folder"LICENSE* "$folder"NOTICE* "$folder"Sources/CNIOLLHTTP/LICENSE; do
            [ -f "$file" ] || continue
            printf '==== %s\n\n' "${file#"$scratch"/checkouts/}"
            cat "$file"
            printf '\n'
        done
    done
    printf '==== Swift: the runtime and Foundation\n\n'
    cat "$resources/../../share/swift/LICENSE.txt"
    printf '\n'
    cat Packaging/notices.txt
} >"$work/NOTICES"

# Everything has the same date, owner and order, and no name of this machine: the same programs give the same bytes.
date_all() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }
rm -rf dist
mkdir dist

# ---- The archive.
name=swift-tile-cache-$version-linux-$arch
mkdir "$work/archive" "$work/archive/$name" "$work/archive/$name/bin"
install -m 755 "$work/tilegc" "$work/tileproxy" "$work/archive/$name/bin/"
install -m 644 LICENSE CHANGELOG.md "$work/NOTICES" Examples/tileproxy.service Examples/tileproxy.yaml "$work/archive/$name/"
install -m 644 Packaging/tileproxy.yaml "$work/archive/$name/tileproxy-minimal.yaml"
date_all "$work/archive"
tar --create --sort=name --owner=0 --group=0 --numeric-owner --format=ustar --directory "$work/archive" "$name" |
    gzip -9n >"dist/$name.tar.gz"

# ---- The package.
tree=$work/tree
doc=$tree/usr/share/doc/tileproxy
mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/etc/tileproxy" "$tree/lib/systemd/system" "$tree/usr/share/lintian/overrides" \
    "$doc/examples"
install -m 755 "$work/tilegc" "$work/tileproxy" "$tree/usr/bin/"
install -m 644 Packaging/tileproxy.yaml "$tree/etc/tileproxy/"
install -m 644 Examples/tileproxy.service "$tree/lib/systemd/system/"
install -m 644 Examples/tileproxy.yaml "$doc/examples/"
install -m 644 Packaging/copyright "$doc/"
gzip -9n <"$work/NOTICES" >"$doc/NOTICES.gz"
gzip -9n <CHANGELOG.md >"$doc/CHANGELOG.md.gz"
gzip -9n >"$doc/changelog.gz" <<TEXT
tileproxy ($version) stable; urgency=medium

  * Version $version of swift-tile-cache: what has changed is in CHANGELOG.md.

 -- $maintainer  $(date --utc --date="@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')
TEXT
install -m 644 Packaging/lintian-overrides "$tree/usr/share/lintian/overrides/tileproxy"
install -m 755 Packaging/postinst Packaging/prerm Packaging/postrm "$tree/DEBIAN/"
echo /etc/tileproxy/tileproxy.yaml >"$tree/DEBIAN/conffiles"

# What the programs load, as the packages here name it.
mkdir "$work/shlibs" "$work/shlibs/debian"
printf 'Source: tileproxy\n\nPackage: tileproxy\nArchitecture: any\n' >"$work/shlibs/debian/control"
libraries=$(cd "$work/shlibs" && dpkg-shlibdeps -O "$tree/usr/bin/tilegc" "$tree/usr/bin/tileproxy" | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || fail "dpkg-shlibdeps names no library"
size=$(find "$tree" -path "$tree/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
cat >"$tree/DEBIAN/control" <<TEXT
Package: tileproxy
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $size
Depends: adduser, ca-certificates, $libraries
Recommends: libjs-leaflet
Section: web
Priority: optional
Description: caching proxy and tools for map tiles
 tileproxy keeps the tiles of map servers on disk and serves them to browsers
 and apps, over HTTP/1.1 and HTTP/2. Equal tiles are stored once. The cache
 never exceeds its disk budget. Stale tiles are revalidated, not downloaded
 again.
 .
 tilegc imports, exports, bounds, verifies and repairs such caches, and converts
 MBTiles, PMTiles and folders of tiles into each other.
TEXT
(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
date_all "$tree"
dpkg-deb --root-owner-group -Zxz --build "$tree" "dist/tileproxy_${version}_$arch.deb"
(cd dist && sha256sum -- *)
