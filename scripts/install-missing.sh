#!/bin/sh
# Looks for what building (`build`), the live demo (`live`), the tests (`test`), the benches (`bench`: what the tests need, fio and python3-venv),
# the test with other programs (`peers`: python3-venv) or the reading of compiled code (`fences`) need, and installs what is missing.
# Nothing missing: does nothing and leaves apt alone. Can't install: prints the one line that would, and stops with 2.
#
# usage: install-missing.sh build|live|test|peers|bench|fences|fuzz
set -u
here=$(cd "$(dirname "$0")" && pwd)
want=${1:-build}
PATH="$PATH:/usr/sbin:/sbin" # where Debian keeps tcpdump and ip, and users' paths don't look
export PATH

say() { echo "$*" >&2; }

# Rust comes from rustup, not from here: Debian 12's is too old.
check_rust() {
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/../Cargo.toml")
    remedy="get Rust by: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y   (or, where rustup is there: rustup update stable)"
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p')
    if [ -z "$found" ] || ! cargo --version >/dev/null 2>&1; then
        say "no Rust toolchain found, $needed or newer is needed; $remedy"
        exit 2
    fi
    if [ "$(printf '%s\n%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
        say "Rust $found is too old, $needed or newer is needed; $remedy"
        exit 2
    fi
}

# Prints the Debian packages that are missing.
missing_packages() {
    command -v gcc >/dev/null 2>&1 || echo gcc
    if ! command -v gcc >/dev/null 2>&1 || ! links_libpcap; then
        echo libc6-dev libpcap-dev
    fi
    if [ "$want" = fuzz ]; then
        command -v g++ >/dev/null 2>&1 || echo g++
    fi
    if [ "$want" = fences ]; then
        command -v objdump >/dev/null 2>&1 || echo binutils
    fi
    if [ "$want" = peers ]; then
        command -v python3 >/dev/null 2>&1 || echo python3
        python3 -c 'import ensurepip' >/dev/null 2>&1 || echo python3-venv
    fi
    if [ "$want" = bench ]; then
        command -v fio >/dev/null 2>&1 || echo fio
        python3 -c 'import ensurepip' >/dev/null 2>&1 || echo python3-venv
    fi
    if [ "$want" = live ] || [ "$want" = test ] || [ "$want" = bench ]; then
        command -v ip >/dev/null 2>&1 || echo iproute2
        command -v unshare >/dev/null 2>&1 || echo util-linux
    fi
    if [ "$want" = test ] || [ "$want" = bench ]; then
        command -v tcpdump >/dev/null 2>&1 || echo tcpdump
        { command -v tshark && command -v capinfos; } >/dev/null 2>&1 || echo tshark
        { command -v chattr && command -v mkfs.ext4; } >/dev/null 2>&1 || echo e2fsprogs
        command -v gzip >/dev/null 2>&1 || echo gzip
        command -v zstd >/dev/null 2>&1 || echo zstd
        command -v lz4 >/dev/null 2>&1 || echo lz4
        command -v tcpreplay >/dev/null 2>&1 || echo tcpreplay
        command -v setcap >/dev/null 2>&1 || echo libcap2-bin
        { command -v prometheus && command -v promtool; } >/dev/null 2>&1 || echo prometheus
        /usr/bin/python3 -c 'import scapy' >/dev/null 2>&1 || echo python3-scapy
        command -v logrotate >/dev/null 2>&1 || echo logrotate
        command -v pkg-config >/dev/null 2>&1 || echo pkg-config
        command -v c++ >/dev/null 2>&1 || echo g++
        command -v systemd-analyze >/dev/null 2>&1 || echo systemd
        { command -v fsfreeze && command -v setpriv; } >/dev/null 2>&1 || echo util-linux
    fi
}

links_libpcap() {
    probe=$(mktemp) || return 1
    printf '#include <pcap/pcap.h>\nint main(void) { return pcap_lib_version() == 0; }\n' |
        gcc -x c - -lpcap -o "$probe" 2>/dev/null
    linked=$?
    rm -f "$probe"
    return $linked
}

apt() { "$here/as-root.sh" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >&2; }

# Of prometheus only the programs: the package would start a service, and bring the fonts of its pages.
unpack_prometheus() {
    folder=$(mktemp -d) || return 1
    (cd "$folder" && chmod 755 . && apt-get -q download prometheus >&2) &&
        dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -x -C "$folder" ./usr/bin/prometheus ./usr/bin/promtool &&
        "$here/as-root.sh" install -m 0755 "$folder/usr/bin/prometheus" "$folder/usr/bin/promtool" /usr/local/bin/
    unpacked=$?
    rm -rf "$folder"
    return $unpacked
}

# Gets these packages, prometheus in its own way.
get() {
    others=
    for package in "$@"; do [ "$package" = prometheus ] || others="$others $package"; done
    # shellcheck disable=SC2086 # a list of names
    { [ -z "$others" ] || apt install --no-install-recommends $others; } || return
    case " $* " in *" prometheus "*) unpack_prometheus ;; esac
}

# Without package lists an install can't work; with old ones it may, so that the update comes only if it doesn't.
install_all() {
    if [ -n "$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -n 1)" ]; then
        get "$@" && return
        say "that failed; fetching newer package lists"
    fi
    apt update || { say "fetching the package lists failed; trying once more"; sleep 3; apt update; }
    get "$@"
}

check_rust
missing=$(missing_packages | tr '\n' ' ' | sed 's/ $//')
[ -z "$missing" ] && exit 0

line="apt-get update && apt-get install -y --no-install-recommends $missing"
if ! command -v apt-get >/dev/null 2>&1; then
    say "missing: $missing (Debian's names), and there is no apt-get here; install them with this system's own means"
    exit 2
fi
if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && command -v sudo >/dev/null 2>&1; }; then
    say "missing: $missing; neither are you root nor does sudo work here; as root, run:"
    say "$line"
    exit 2
fi
say "installing what is missing: $missing (about a minute)"
# shellcheck disable=SC2086 # a list of names
install_all $missing
missing=$(missing_packages | tr '\n' ' ' | sed 's/ $//')
if [ -n "$missing" ]; then
    say "still missing after the installation: $missing; as root, run:"
    say "$line"
    exit 2
fi
