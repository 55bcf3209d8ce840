#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `make install` leaves stands alone: it is moved to another folder, does
# not look into the build folder, runs there, and programs are built with it.

set -u
failed=0

complain()
{
    echo "FAILED: $*"
    failed=1
}

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# What this make was asked for is not for that one.
unset MAKEFLAGS MFLAGS MAKELEVEL
make -C "$WEFT_BUILDDIR" install "DESTDIR=$dir/root" >"$dir/log" 2>&1 ||
    { cat "$dir/log"; complain "make install"; exit 1; }
prefix=$(sed -n 's/^prefix = //p' "$WEFT_BUILDDIR/Makefile")
mv "$dir/root$prefix" "$dir/moved"
rm -rf "$dir/root"
cd "$dir/moved" || exit 1

# ---- Nothing looks back -------------------------------------------------------
starpu=$(sed -n 's/^STARPU_LIBDIR = //p' "$WEFT_BUILDDIR/Makefile")
private=no
[ ! -r "$starpu/../.weft-stamp" ] || private=yes
for file in $(find . -type f); do
    readelf -d "$file" 2>/dev/null | grep -E 'R(UN)?PATH' >"$dir/path" || continue
    ! grep -qF -e "$WEFT_BUILDDIR" -e "$WEFT_SRCDIR" "$dir/path" ||
        complain "$file looks into the build folder: $(cat "$dir/path")"
    [ $private = no ] || ! grep -qF "$starpu" "$dir/path" ||
        complain "$file looks for StarPU where it was built"
done
[ -e bin/weft ] || complain "no bin/weft"
if [ $private = yes ]; then
    for file in bin/weft lib/libweft.so lib/weft/fxt/starpu_fxt_tool; do
        [ -e "$file" ] || continue
        ldd "$file" | grep starpu >"$dir/ldd"
        grep -qF "$dir/moved/" "$dir/ldd" ||
            complain "$file finds no StarPU: $(cat "$dir/ldd")"
        ! grep -vF "$dir/moved/" "$dir/ldd" || complain "... for $file"
    done
fi

# ---- It runs --------------------------------------------------------------------
doc=share/doc/weft
bin/weft info >"$dir/log" 2>&1 || { cat "$dir/log"; complain "weft info"; }
bin/weft train $doc/examples/quickstart/ppo.yaml iterations=1 trace=true \
    rollout.prompts=8 "run_dir=$dir/run" >"$dir/log" 2>&1 ||
    { cat "$dir/log"; complain "weft train"; }
[ ! -e lib/weft/fxt/starpu_fxt_tool ] || [ -s "$dir/run/trace/paje.trace" ] ||
    { cat "$dir/log"; complain "no paje.trace"; }

# ---- Pages and examples ---------------------------------------------------------
# shellcheck disable=SC2044
for page in $(cd "$WEFT_SRCDIR" && find README.md NEWS LICENSE doc examples \
    -name .libs -prune -o -type f \( -name '*.md' -o -name '*.yaml' \
    -o -name '*.json*' -o -name 'README*' -o -name NEWS -o -name LICENSE \
    -o -path 'examples/*.[ch]' -o -name '*.safetensors' -o -name '*.svg' \) \
    -print); do
    case $page in doc/pictures/timeline.*[nl]) continue ;; esac
    [ -s "$doc/$page" ] || complain "$page is not installed"
done

# ---- Programs are built with it -------------------------------------------------
PKG_CONFIG_PATH=$dir/moved/lib/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046,SC2086
for example in 01_score 03_layer_graph; do
    $WEFT_CC $WEFT_INSTRUMENT -o "$dir/$example" "$doc/examples/$example.c" \
        $(pkg-config --define-prefix --cflags --libs weft) >"$dir/log" 2>&1 ||
        { cat "$dir/log"; complain "$example does not build"; }
done
LD_LIBRARY_PATH=$dir/moved/lib "$dir/01_score" $doc/examples/quickstart/model \
    "sort 30754: 03457" >"$dir/log" 2>&1 ||
    { cat "$dir/log"; complain "01_score does not run"; }

# weft.pc knows all below the library: its objects, without it, link.
# shellcheck disable=SC2046
flags=$(pkg-config --define-prefix --static --libs weft | sed 's/-lweft //')
echo 'int weft_never; const char *weft_version(void);
int main(void) { return weft_version()[0] == 0; }' >"$dir/static.c"
# shellcheck disable=SC2086
$WEFT_CC $WEFT_INSTRUMENT -o "$dir/static" "$dir/static.c" -Wl,--whole-archive \
    "$WEFT_BUILDDIR"/.libs/libweft_run.a -Wl,--no-whole-archive \
    -Wl,--start-group "$WEFT_BUILDDIR"/.libs/libweft_*.a -Wl,--end-group \
    $flags >"$dir/log" 2>&1 && "$dir/static" ||
    { cat "$dir/log"; complain "weft.pc lacks a library for --static"; }
exit $failed
