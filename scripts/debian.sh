#!/usr/bin/env bash
# Install the Debian packages named as arguments, as root or through sudo.
set -euo pipefail

if ! command -v apt-get >/dev/null; then
    echo "Please install these by hand, there is no apt-get here: $*" >&2
    exit 1
fi
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)

# RUNLEVEL=1 keeps packages from starting their services: the tests start what they need themselves.
environment=(env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1)
options=(-qq -o DPkg::Lock::Timeout=300)
echo "installing $*"
"${as_root[@]}" "${environment[@]}" apt-get "${options[@]}" update
"${as_root[@]}" "${environment[@]}" apt-get "${options[@]}" install -y --no-install-recommends "$@" >/dev/null
