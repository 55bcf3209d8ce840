#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes ./configure. Needs autoconf, automake, libtool and pkg-config.
set -eu
cd "$(dirname "$0")"

for tool in autoreconf automake libtoolize pkg-config; do
    command -v "$tool" >/dev/null && continue
    echo "autogen.sh: '$tool' is missing; on Debian: apt install" \
        "autoconf automake libtool pkg-config" >&2
    exit 1
done
# autoreconf does not notice that the version has changed.
if [ -e configure ] &&
    ! grep -qF "PACKAGE_VERSION='$(tools/version)'" configure; then
    rm -rf autom4te.cache configure
fi
mkdir -p build-aux
autoreconf --install --warnings=all,no-obsolete,no-portability "$@"
