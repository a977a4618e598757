#!/bin/sh
# Runs a command as root: directly, else by sudo where that needs no question or a terminal can answer it, else stops with 2.
# Also the runner of the test programs, so that the live tests run where sudo is free.
if [ "$(id -u)" -eq 0 ]; then
    exec "$@"
fi
if sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null 2>&1; }; then
    exec sudo -E env "PATH=$PATH" "$@"
fi
echo "this needs root and neither are you root nor does sudo work here; as root, run: $*" >&2
exit 2
