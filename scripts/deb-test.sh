#!/bin/sh
# Looks into the Debian package, and, as root, installs it into a copy of this system that is gone afterwards: an overlay in a
# mount namespace of its own.
#
# usage: deb-test.sh PACKAGE
set -eu
package=$1
name=wirescope
PATH="$PATH:/usr/sbin:/sbin"
export PATH

fail() { echo "deb-test: $*" >&2; exit 1; }
# skip WHY: says what isn't tested; with CI=true in the environment nothing may be skipped.
skip() { [ "${CI:-}" != true ] || fail "must not be skipped in CI: $*"; echo "skipped: $*"; }
has() { echo "$listing" | grep -Eq "^$1 root/root .* \./$2\$" || fail "not in the package as it should be: $1 $2"; }
# In the copy: `check WHAT COMMAND...` must succeed.
check() { what=$1; shift; "$@" || fail "$what"; }

contents() {
    listing=$(dpkg-deb -c "$package")
    has -rwxr-xr-x usr/bin/wirescope
    has -rw-r--r-- lib/systemd/system/wirescope.service
    has -rw-r--r-- lib/systemd/system/wirescope-serve.service
    has -rw-r--r-- etc/default/wirescope-serve
    has -rw-r--r-- usr/lib/tmpfiles.d/wirescope.conf
    has -rw-r--r-- usr/share/wirescope/grafana/wirescope.json
    has -rw-r--r-- usr/share/wirescope/prometheus/wirescope.rules.yml
    has -rw-r--r-- etc/wirescope/wirescope.toml
    has -rw-r--r-- etc/logrotate.d/wirescope
    linked
    dpkg-deb -x "$package" "$work/pages"
    mkdir "$work/own-pages"
    "$work/pages/usr/bin/wirescope" man --out "$work/own-pages" || fail 'the program of the package writes no manual pages'
    [ -f "$work/own-pages/wirescope.1" ] && [ -f "$work/own-pages/wirescope-config-check.1" ] || fail 'manual pages are missing'
    for page in "$work"/own-pages/*; do has -rw-r--r-- "usr/share/man/man1/${page##*/}.gz"; done
    has -rw-r--r-- usr/share/bash-completion/completions/wirescope
    has -rw-r--r-- usr/share/zsh/vendor-completions/_wirescope
    has -rw-r--r-- usr/share/fish/vendor_completions.d/wirescope.fish
    has -rw-r--r-- usr/share/doc/wirescope/copyright
    has -rw-r--r-- usr/share/doc/wirescope/THIRD-PARTY.txt
    dpkg-deb --fsys-tarfile "$package" | tar -xO ./usr/share/doc/wirescope/THIRD-PARTY.txt | grep '^  clap [0-9]' >/dev/null ||
        fail 'the notices of other licences name no crate'
    has -rw-r--r-- usr/share/doc/wirescope/docs/wirescope.toml
    [ "$(dpkg-deb -I "$package" conffiles | paste -s -d ' ')" = '/etc/wirescope/wirescope.toml /etc/logrotate.d/wirescope /etc/default/wirescope-serve' ] ||
        fail 'the settings are no conffiles'
    dpkg-deb -f "$package" Depends | grep -q 'libc6 (>= .*libpcap0.8 (>= ' || fail 'its libraries are missing in Depends'
    unit=$work/pages/lib/systemd/system/wirescope.service
    # The store writes straight from the ring: its memory is registered, which counts as locked.
    grep -qx 'LimitMEMLOCK=infinity' "$unit" || fail 'the service may not lock the memory of its ring'
    for folder in $(sed -n 's/^StateDirectory=//p' "$unit"); do echo "/var/lib/$folder"; done >"$work/state"
    stores=$(sed -n 's/^#store = \["\(.*\)"\]$/\1/p' "$work/pages/etc/wirescope/wirescope.toml")
    grep -qxF "${stores:?the settings name no store}" "$work/state" || fail "the service may not write to the store of its settings, $stores"
    for script in postinst prerm postrm; do
        dpkg-deb -I "$package" $script | sh -n || fail "$script is no shell script"
        if dpkg-deb -I "$package" $script | grep -E 'systemctl.*(start|enable)|deb-systemd-invoke|invoke-rc'; then
            fail "$script starts something"
        fi
    done
    echo 'contents: as they should be'
}

# The C library: a program is built against what the package has, as pkg-config says, and finds it.
linked() {
    has -rw-r--r-- usr/include/wirescope.h
    has -rw-r--r-- 'usr/lib/[^/]*/libwirescope.so.0'
    has -rw-r--r-- 'usr/lib/[^/]*/pkgconfig/wirescope.pc'
    has -rw-r--r-- usr/lib/wirescope/libwirescope_preload.so
    echo "$listing" | grep -q ' \./usr/lib/[^/]*/libwirescope.so -> libwirescope.so.0$' || fail 'nothing to link the library by'
    for example in c rs py; do has -rw-r--r-- usr/share/doc/wirescope/examples/count53.$example; done
    mkdir "$work/linked"
    dpkg-deb -x "$package" "$work/linked"
    folder=$(dirname "$(find "$work/linked/usr/lib" -name libwirescope.so.0)")
    needed=$(objdump -p "$folder/libwirescope.so.0" | sed -n 's/^ *NEEDED *//p' | grep -Ev '^(libc\.so\.6|ld-linux.*)$') || true
    [ -z "$needed" ] || fail "the library needs more than libc: $needed"
    # What stands in for libpcap is found from where the program lies: then it is the run that is missing.
    if command -v tcpdump >/dev/null 2>&1; then
        said=$("$work/linked/usr/bin/wirescope" with ring --attach /nowhere/attach -- tcpdump -D 2>&1) || true
        case $said in
            *'no run listens there'*) ;;
            *) fail "wirescope with says: $said" ;;
        esac
    fi
    if ! command -v pkg-config >/dev/null 2>&1; then
        skip 'building against the library: there is no pkg-config here'
        return
    fi
    # shellcheck disable=SC2046 # several words
    cc -o "$work/count53" "$work/linked/usr/share/doc/wirescope/examples/count53.c" $(PKG_CONFIG_PATH=$folder/pkgconfig \
        PKG_CONFIG_SYSROOT_DIR=$work/linked pkg-config --cflags --libs wirescope) || fail 'no program can be built against the library'
    said=$(LD_LIBRARY_PATH=$folder "$work/count53" /nowhere/attach 2>&1) || true
    case $said in
        *'no run listens there'*) ;;
        *) fail "a program that was built against the library says: $said" ;;
    esac
}

unit() {
    if ! command -v systemd-analyze >/dev/null 2>&1; then
        skip 'the unit: there is no systemd-analyze here'
        return
    fi
    dpkg-deb -x "$package" "$work/root"
    verify wirescope 20
    verify wirescope-serve 15
    # What is left is what a recorder needs: packet sockets, the host's network, machine code of filters.
    if grep -E '^(AmbientCapabilities|CapabilityBoundingSet)=' "$work/wirescope.service" | grep -qv '=CAP_NET_RAW$'; then
        fail 'the unit has more than CAP_NET_RAW'
    fi
    if grep -E '^(AmbientCapabilities|CapabilityBoundingSet)=' "$work/wirescope-serve.service" | grep -qv '=$'; then
        fail 'the unit of the door to the network has a capability'
    fi
    for unit in wirescope wirescope-serve; do
        grep -qx 'LimitCORE=0' "$work/$unit.service" || fail "a crash of $unit may write packets to disk"
    done
    # The folder of the sockets is the same one for both, the settings and the start of the system.
    socket=$(sed -n 's/^control = "\(.*\)"$/\1/p' "$work/root/etc/wirescope/wirescope.toml")
    grep -q -- "--control $socket " "$work/root/etc/default/wirescope-serve" || fail "the door to the network isn't told of $socket"
    grep -qx "RuntimeDirectory=$(basename "$(dirname "$socket")")" "$work/wirescope.service" || fail "the service has no folder for $socket"
    grep -q "^d $(dirname "$socket") " "$work/root/usr/lib/tmpfiles.d/wirescope.conf" || fail "nothing makes the folder of $socket"
    echo 'units: nothing to complain of'
}

# verify UNIT THRESHOLD: what systemd says of it, and that it is no more exposed than that.
verify() {
    # Another place for the program: verify looks for it in this system.
    sed "s|/usr/bin/wirescope|$work/root/usr/bin/wirescope|" "$work/root/lib/systemd/system/$1.service" >"$work/$1.service"
    said=$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no --recursive-errors=no "$work/$1.service" 2>&1) ||
        fail "the unit $1: $said"
    [ -z "$said" ] || fail "the unit $1: $said"
    said=$(systemd-analyze security --no-pager --offline=true --threshold="$2" "$work/$1.service" 2>&1) ||
        fail "the unit $1 is more exposed than it was: $(echo "$said" | tail -n 1)"
}

# Runs inside the copy's mount namespace; $root is the copy.
installed() {
    in_root() { chroot "$root" "$@"; }
    check 'installing' in_root dpkg -i "/$name.deb"
    check 'the user' in_root getent passwd wirescope
    check 'the user of the door to the network' in_root getent passwd wirescope-serve
    [ "$(in_root stat -c '%U:%G %a' /var/lib/wirescope-serve)" = 'wirescope-serve:wirescope-serve 700' ] || fail 'the folder for tokens'
    [ "$(in_root stat -c '%U:%G %a' /run/wirescope)" = 'wirescope:wirescope 750' ] || fail 'the folder for sockets'
    [ "$(in_root stat -c '%U:%G %a' /var/lib/wirescope)" = 'wirescope:wirescope 750' ] || fail 'the folder for dumps'
    check 'the program runs' in_root wirescope --version
    check 'the loader finds the library' in_root sh -c 'ldconfig -p | grep -q "libwirescope.so.0 "'
    for unit in wirescope wirescope-serve; do
        in_root test ! -e /etc/systemd/system/multi-user.target.wants/$unit.service || fail "$unit is enabled"
    done
    [ -z "$(in_root sh -c 'cat /proc/[0-9]*/comm | grep -x wirescope')" ] || fail 'something was started'
    # As the service runs it: as this user, into this folder.
    check 'a run as the user of the service' in_root setpriv --reuid wirescope --regid wirescope --clear-groups \
        wirescope run --source synth:rate=10k,time=1s,trigger-at=500ms --ring 64MiB --trigger 'udp port 60000' \
        --before 100ms --after 100ms --out /var/lib/wirescope
    rotated
    asked
    stored
    # Settings of one's own survive another installation; dumps survive everything.
    echo '# mine' >>"$root/etc/wirescope/wirescope.toml"
    check 'installing again' in_root dpkg -i "/$name.deb"
    check 'own settings stay' grep -q '# mine' "$root/etc/wirescope/wirescope.toml"
    check 'removing' in_root dpkg -r $name
    check 'own settings stay' grep -q '# mine' "$root/etc/wirescope/wirescope.toml"
    check 'purging' in_root dpkg -P $name
    [ ! -e "$root/etc/wirescope/wirescope.toml" ] || fail 'settings stay after a purge'
    ls "$root"/var/lib/wirescope/*.pcapng >/dev/null || fail 'dumps are gone after a purge'
    ls "$root"/var/lib/wirescope-store/*/*.pcapng >/dev/null || fail 'the store is gone after a purge'
    echo 'installed, run, installed again, removed, purged: as it should be'
}

# A run of the service's user goes on in a new log when the old one is rotated as the package says, by SIGHUP in place of the
# service manager's reload, which isn't here.
rotated() {
    if ! in_root sh -c 'command -v logrotate' >/dev/null; then
        skip 'rotating the log: there is no logrotate here'
        return
    fi
    folder=$root/var/lib/wirescope
    sed -e 's/^ *size .*/    size 1/' -e '/^ *postrotate/,/^ *endscript/{/postrotate/a kill -HUP $(cat /var/lib/wirescope/pid)
/if\|systemctl\|fi$/d}' "$root/etc/logrotate.d/wirescope" >"$root/rotate"
    rm "$folder/wirescope.jsonl" # an earlier run's
    in_root setpriv --reuid wirescope --regid wirescope --clear-groups sh -c 'echo $$ >/var/lib/wirescope/pid; exec wirescope run \
        --source synth:rate=1k --ring 64MiB --out /var/lib/wirescope' 2>/dev/null &
    for _ in $(seq 100); do grep -qs '"status"' "$folder/wirescope.jsonl" && break; sleep 0.2; done
    check 'rotating' in_root logrotate -s /state /rotate
    for _ in $(seq 100); do [ ! -s "$folder/wirescope.jsonl" ] || break; sleep 0.1; done
    check 'the old log is kept' test -s "$folder/wirescope.jsonl.1"
    check 'the new log says who its run is' grep -q '"continues":true' "$folder/wirescope.jsonl"
    [ "$(stat -c %a "$folder/wirescope.jsonl")" = 640 ] || fail 'the mode of the new log'
    in_root sh -c 'kill -INT $(cat /var/lib/wirescope/pid)'
    wait
    rm "$folder/pid"
}

# A run by the settings of the package is found and asked at its socket, and takes it away at its end.
asked() {
    in_root setpriv --reuid wirescope --regid wirescope --clear-groups --no-new-privs sh -c 'echo $$ >/var/lib/wirescope/pid; exec \
        wirescope run --config /etc/wirescope/wirescope.toml --source synth:rate=1k --ring 64MiB' 2>/dev/null &
    for _ in $(seq 100); do [ ! -S "$root/run/wirescope/wirescope.sock" ] || break; sleep 0.2; done
    [ "$(in_root stat -c '%U:%G %a' /run/wirescope/wirescope.sock)" = 'wirescope:wirescope 660' ] || fail 'the control socket'
    check 'a question of root' in_root wirescope status
    check 'a question of a member of the group' in_root setpriv --reuid nobody --regid nogroup --groups wirescope wirescope status
    if in_root setpriv --reuid nobody --regid nogroup --clear-groups wirescope status --control /run/wirescope/wirescope.sock; then
        fail 'somebody else was answered'
    fi
    in_root sh -c 'kill -INT $(cat /var/lib/wirescope/pid)'
    wait
    rm "$root/var/lib/wirescope/pid"
}

# A run stores by the settings of the package, whose lines for the store are made valid, as far as the service's restrictions can be
# had without a service manager: its user, no capabilities and none to gain, its limits, and nothing to write to but its folders.
stored() {
    folder=/var/lib/wirescope-store
    sed -i -e 's/^#store/store/' "$root/etc/wirescope/wirescope.toml"
    in_root install -d -o wirescope -g wirescope -m 0750 $folder # as the service manager does
    for writable in /var/lib/wirescope $folder /run/wirescope; do mount --bind "$root$writable" "$root$writable"; done
    mount -t tmpfs tmpfs "$root/tmp"
    mount -o remount,bind,ro "$root"
    memlock=--memlock=unlimited
    in_root prlimit $memlock true 2>/dev/null || memlock= # not even root may here; then the kernel may refuse to register the ring
    # shellcheck disable=SC2086 # an option, or none
    check 'a run of the service that stores' in_root prlimit --core=0 $memlock setpriv --reuid wirescope --regid wirescope \
        --clear-groups --no-new-privs --bounding-set -all --inh-caps -all sh -c 'umask 0027; exec wirescope run \
        --config /etc/wirescope/wirescope.toml --source synth:packets=40k,size=1000,pace=max --ring 64MiB --store-budget 64MiB'
    mount -o remount,bind,rw "$root"
    [ ! -e "$root/run/wirescope/wirescope.sock" ] || fail 'the control socket stays behind its run'
    umount "$root/tmp" "$root/var/lib/wirescope" "$root$folder" "$root/run/wirescope"
    check 'the store is whole' in_root wirescope verify $folder
    in_root wirescope store list --store $folder | tail -n 1 | grep -q '1 run, .* 40,000 packets' || fail 'not every packet is stored'
    [ "$(in_root find $folder ! -user wirescope)" = '' ] || fail 'something of the store is not of the user of the service'
    [ "$(in_root find $folder -perm /o=rwx)" = '' ] || fail 'something of the store is open to all'
    sed -i -e 's/^store/#store/' "$root/etc/wirescope/wirescope.toml"
}

# Makes the copy: what is written to it is in memory only.
copy() {
    mount -t tmpfs -o size=512m tmpfs "$work/memory" || return 1
    mkdir "$work/memory/upper" "$work/memory/work" "$work/memory/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$work/memory/upper,workdir=$work/memory/work" "$work/memory/root" || return 1
    root=$work/memory/root
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && rm -rf "$root/run/systemd"
    cp "$package" "$root/$name.deb"
}

if [ "${2:-}" = inside ]; then
    work=$3
    copy || { echo 'no copy of this system can be made here'; exit 3; }
    installed
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/root" "$work/memory"
contents
unit
if [ "$(id -u)" -ne 0 ]; then
    skip 'the installation: it needs root'
    exit 0
fi
code=0
unshare --mount --propagation private --pid --fork "$0" "$package" inside "$work" >"$work/log" 2>&1 || code=$?
case $code in
    0) tail -n 1 "$work/log" ;;
    3) skip "the installation: $(tail -n 2 "$work/log" | paste -s -d ' ')" ;;
    *) cat "$work/log" >&2; exit 1 ;;
esac
