#!/bin/sh
# Unpacks the peers of `make bench BENCH=ring`, `live`, `flows` and `share` that come as Debian packages below FOLDER; nothing is installed. What can't be
# had is omitted with a message: the bench says so, too. With packages named, these.
#
# usage: fetch-peers.sh FOLDER [PACKAGE FILE_OF_IT]...
set -u
folder=${1:?usage: fetch-peers.sh FOLDER [PACKAGE FILE_OF_IT]...}
shift
say() { echo "$*" >&2; }

fetch() { # package, a file of it
    [ -e "$folder/$2" ] && return
    command -v apt-get >/dev/null 2>&1 || { say "$1: no apt-get here; this peer is omitted"; return; }
    packages=$(mktemp -d) || return
    if (cd "$packages" && chmod 755 . && apt-get -q download "$1" >/dev/null 2>&1); then
        mkdir -p "$folder" && dpkg -x "$packages"/*.deb "$folder" && touch "$folder/fetched"
    else
        say "$1: can't be downloaded (apt-get update may help); this peer is omitted"
    fi
    rm -rf "$packages"
}

if [ $# -gt 0 ]; then
    while [ $# -gt 1 ]; do
        fetch "$1" "$2"
        shift 2
    done
    exit 0
fi
fetch libconcurrentqueue-dev usr/include/concurrentqueue/concurrentqueue.h
fetch libdpdk-dev usr/include/dpdk/rte_ring.h
fetch netsniff-ng usr/sbin/netsniff-ng
fetch libgeoip1 usr/lib/x86_64-linux-gnu/libGeoIP.so.1
fetch libnl-route-3-200 usr/lib/x86_64-linux-gnu/libnl-route-3.so.200
fetch stenographer usr/sbin/stenotype
fetch libleveldb1d usr/lib/x86_64-linux-gnu/libleveldb.so.1d
fetch libaio1 usr/lib/x86_64-linux-gnu/libaio.so.1
fetch nfdump usr/bin/nfpcapd
fetch softflowd usr/sbin/softflowd
exit 0
