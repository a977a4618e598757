#!/bin/sh
# Makes the Debian package out of a built binary with dpkg-deb alone: what it holds is a handful of files.
# Prints the package's path. Changes nothing outside of its own folder.
#
# usage: deb.sh BINARY FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
binary=$1
folder=$2
name=wirescope
revision=1

if ! command -v dpkg-deb >/dev/null 2>&1; then
    echo "no dpkg-deb here; the package can only be made on Debian and its kin" >&2
    exit 2
fi
umask 022
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")-$revision
architecture=$(dpkg --print-architecture)
stage=$folder/stage
rm -rf "$stage"
mkdir -p "$stage/DEBIAN"

# put MODE FROM TO: a file of the package.
put() { install -D -m "$1" "$2" "$stage/$3"; }

# A library of the same build: beside the binary, or where the tests have built theirs, whichever is newer.
built() {
    found=$(ls -t "$(dirname "$binary")/$1" "$(dirname "$binary")/deps/$1" 2>/dev/null | head -n 1)
    [ -n "$found" ] || { echo "no $1 beside $binary; cargo build --workspace makes it" >&2; exit 1; }
    echo "$found"
}
library=$(built libwirescope.so)
preload=$(built libwirescope_preload.so)
soname=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
libraries=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch)

# The libraries that the binary names, as packages with the version they were built against.
depends() {
    objdump -p "$binary" | sed -n 's/^ *NEEDED *//p' | while read -r library; do
        package=$(dpkg-query -S "*/$library" 2>/dev/null | sed -n "s/^\([^:, ]*\):$architecture: .*/\1/p" | head -n 1)
        [ -n "$package" ] || { echo "no Debian package has $library, which the binary needs" >&2; exit 1; }
        built=$(dpkg-query -W -f '${Version}' "$package:$architecture" | sed 's/^[0-9]*://; s/[-+].*//')
        case $package in
            lib*gcc*) echo "$package" ;; # its version is that of the compiler, whatever it offers
            *) echo "$package (>= $built)" ;;
        esac
    done | sort -u | paste -s -d, | sed 's/,/, /g'
}

put 0755 "$binary" "usr/bin/$name"
strip --strip-unneeded "$stage/usr/bin/$name"
put 0644 "$library" "$libraries/$soname"
strip --strip-unneeded "$stage/$libraries/$soname"
ln -s "$soname" "$stage/$libraries/libwirescope.so"
# Found by the program from where it lies itself, and loaded by nobody else.
put 0644 "$preload" "usr/lib/wirescope/libwirescope_preload.so"
strip --strip-unneeded "$stage/usr/lib/wirescope/libwirescope_preload.so"
put 0644 "$root/crates/libwirescope/include/wirescope.h" usr/include/wirescope.h
for example in c rs py; do
    put 0644 "$root/crates/libwirescope/examples/count53.$example" "usr/share/doc/wirescope/examples/count53.$example"
done
put 0644 "$root/packaging/wirescope.service" "lib/systemd/system/$name.service"
put 0644 "$root/packaging/wirescope-serve.service" "lib/systemd/system/$name-serve.service"
put 0644 "$root/packaging/wirescope-serve.default" "etc/default/$name-serve"
put 0644 "$root/packaging/tmpfiles" "usr/lib/tmpfiles.d/$name.conf"
put 0644 "$root/packaging/grafana/wirescope.json" "usr/share/wirescope/grafana/wirescope.json"
put 0644 "$root/packaging/prometheus/wirescope.rules.yml" "usr/share/wirescope/prometheus/wirescope.rules.yml"
put 0644 "$root/packaging/wirescope.toml" "etc/wirescope/wirescope.toml"
put 0644 "$root/packaging/logrotate" "etc/logrotate.d/$name"
made=$folder/made
rm -rf "$made"
mkdir -p "$made/man1"
sed -e "s|@LIBDIR@|/$libraries|" -e "s|@VERSION@|${version%-*}|" "$root/crates/libwirescope/wirescope.pc.in" >"$made/wirescope.pc"
put 0644 "$made/wirescope.pc" "$libraries/pkgconfig/wirescope.pc"
"$binary" man --out "$made/man1"
for page in "$made"/man1/*.1; do
    gzip -9n "$page"
    put 0644 "$page.gz" "usr/share/man/man1/${page##*/}.gz"
done
for shell in bash zsh fish; do "$binary" completions $shell >"$made/$shell"; done
put 0644 "$made/bash" "usr/share/bash-completion/completions/wirescope"
put 0644 "$made/zsh" "usr/share/zsh/vendor-completions/_wirescope"
put 0644 "$made/fish" "usr/share/fish/vendor_completions.d/wirescope.fish"
put 0644 "$root/README.md" "usr/share/doc/wirescope/README.md"
(cd "$root/docs" && find . -name '*.md' -o -name '*.toml' -o -name '*.json') | sort | while read -r file; do
    put 0644 "$root/docs/$file" "usr/share/doc/wirescope/docs/$file"
done
cat "$root/LICENSE-MIT" "$root/LICENSE-APACHE" >"$made/copyright"
put 0644 "$made/copyright" "usr/share/doc/wirescope/copyright"
put 0644 "$root/packaging/THIRD-PARTY.txt" "usr/share/doc/wirescope/THIRD-PARTY.txt"

for script in postinst prerm postrm; do put 0755 "$root/packaging/$script" "DEBIAN/$script"; done
printf '%s\n' /etc/wirescope/wirescope.toml /etc/logrotate.d/wirescope /etc/default/wirescope-serve >"$stage/DEBIAN/conffiles"
echo 'activate-noawait ldconfig' >"$stage/DEBIAN/triggers" # the loader is told of the library
depends=$(depends)
[ -n "$depends" ]
cat >"$stage/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: $architecture
Maintainer: Wirescope <wirescope@localhost>
Section: net
Priority: optional
Depends: $depends, passwd
Suggests: logrotate
Installed-Size: $(du -sk "$stage" | cut -f 1)
Description: storage oscilloscope for networks
 Records every packet into a ring in memory, all the time, watches the traffic
 for a trigger, and dumps exactly the packets around it, from before and after,
 into a pcapng file, which states whether anything is missing.
 .
 Comes with systemd units, which are not started by themselves, and with a
 dashboard for Grafana and alert rules for Prometheus. Other programs read
 packets of a run in place through libwirescope; programs that capture with
 libpcap do so unchanged.
END
package=$folder/${name}_${version}_$architecture.deb
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
dpkg-deb --root-owner-group --build -Zxz "$stage" "$package" >/dev/null
echo "$package"
