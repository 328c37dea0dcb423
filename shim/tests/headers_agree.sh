#!/bin/sh
# headers_agree.sh CUDA_INCLUDE_DIR [NVML_INCLUDE_DIR]
#
# Compares hami_cuda.h and hami_nvml.h with a toolkit's cuda.h and nvml.h: every size and offset
# that ours assert, every constant, every prototype. What the toolkit is too old to know is listed
# and left out. Exit status: 0 they agree, 1 they do not, 2 they cannot be compared.
set -u
LC_ALL=C
export LC_ALL

own=$(cd "$(dirname "$0")/../include" && pwd) || exit 2
compiler=${CC:-cc}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM

# Functions that no toolkit declares as they were when programs were built against them: today's
# header gives them the newer structure.
older_than_any='nvmlDeviceGetPciInfo nvmlDeviceGetPciInfo_v2 nvmlDeviceGetNvLinkRemotePciInfo'

# What has grown since the CUDA version named: an older toolkit is right to differ.
grown='
12000 size CUDA_KERNEL_NODE_PARAMS
12090 size CUDA_CHILD_GRAPH_NODE_PARAMS
13040 size CUDA_HOST_NODE_PARAMS_v2
13040 size CUdevSmResource
13040 at CUmemPoolProps reserved'

# The comparison's one list: "size TYPE", "at TYPE FIELD", "value NAME" of what a header of ours
# states. Names that begin with HAMI_ are our own.
list() {
    sed -n \
        -e 's/^HAMI_SIZE(\(.*\), [0-9]*);$/size \1/p' \
        -e 's/^HAMI_AT(\(.*\), \(.*\), [0-9]*);$/at \1 \2/p' \
        -e 's/^    \([A-Z][A-Za-z0-9_]*\) = -\{0,1\}[0-9a-fx]*,$/value \1/p' \
        -e 's/^#define \([A-Za-z0-9_]*\) (\{0,1\}-\{0,1\}[0-9][0-9a-fxL]*)\{0,1\}$/value \1/p' \
        "$1" | grep -v -e ' HAMI_' -e 'nvmlPciInfo_v2_t'
}

# program HEADER: reads the list, writes a program that prints it with its numbers.
program() {
    awk -v header="$1" '
        function print_it(text, expression, format) {
            printf "printf(\"%s %%%s\\n\", %s);\n", text, format, expression
        }
        BEGIN {
            print "#define __CUDA_API_VERSION_INTERNAL\n#define NVML_NO_UNVERSIONED_FUNC_DEFS"
            print "#include <stddef.h>\n#include <stdio.h>\n#include \"" header "\""
            print "int main(void) {"
        }
        $1 == "size" { print_it($0, "sizeof(" $2 ")", "zu") }
        $1 == "at" { print_it($0, "offsetof(" $2 ", " $3 ")", "zu") }
        $1 == "value" { print_it($0, "(long long)(" $2 ")", "lld") }
        END { print "return 0; }" }'
}

# known HEADER_DIR HEADER: of the list, what a program with that header can be compiled with. An
# error names its line, and each line of the list is one line of the program.
known() {
    program "$2" <"$work/list" >"$work/known.c"
    first=$(grep -n '^int main' "$work/known.c" | cut -d: -f1)
    "$compiler" -w -fmax-errors=0 -I"$1" -fsyntax-only "$work/known.c" 2>"$work/errors"
    sed -n "s|^$work/known.c:\\([0-9]*\\):.* error: .*|\\1|p" "$work/errors" | sort -un |
        awk -v first="$first" 'FILENAME == "-" { bad[$1 - first] = 1; next } !(FNR in bad)' \
            - "$work/list"
}

numbers() {
    program "$2" <"$work/common" >"$work/numbers.c" &&
        "$compiler" -w -I"$1" "$work/numbers.c" -o "$work/numbers" && "$work/numbers"
}

# Our prototypes, one a line, of the functions that the toolkit declares.
prototypes() {
    sed -n '/^\/\* ---- Functions/,$p' "$1" | sed -e '/^\/\*/d' -e '/^#/d' | tr '\n' ' ' |
        sed 's/;/;\n/g' | while read -r line; do
        name=$(echo "$line" | sed -n 's/^[^(]*[ *]\([A-Za-z0-9_]*\)(.*/\1/p')
        case " $older_than_any " in *" $name "*) continue ;; esac
        [ -n "$name" ] && grep -q "[ *]$name *(" "$work/toolkit.i" && echo "$line"
    done
}

# compare OUR_HEADER THEIR_DIR THEIR_HEADER
compare() {
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$2/$3" | head -1)
    echo "$grown" | awk -v now="${version:-99999}" '$1 > now { sub("^[0-9]* ", ""); print }' \
        >"$work/newer"
    list "$own/$1" | grep -vxF -f "$work/newer" >"$work/list"
    [ -s "$work/list" ] || { echo "headers_agree: nothing to compare in $1" >&2; return 2; }
    known "$2" "$3" >"$work/common"
    [ -s "$work/common" ] || { head -5 "$work/errors" >&2; return 2; }
    numbers "$own" "$1" >"$work/ours" || return 2
    numbers "$2" "$3" >"$work/theirs" || return 2
    result=0
    diff "$work/ours" "$work/theirs" >"$work/diff" || {
        echo "headers_agree: $1 (<) and $2/$3 (>) differ:" >&2
        cat "$work/diff" >&2
        result=1
    }

    # A second declaration of a function must be compatible with the first.
    program "$3" </dev/null >"$work/both.c"
    "$compiler" -w -I"$2" -E -P "$work/both.c" >"$work/toolkit.i" || return 2
    prototypes "$own/$1" >"$work/prototypes"
    [ -s "$work/prototypes" ] || { echo "headers_agree: no prototype in common" >&2; return 2; }
    cat "$work/prototypes" >>"$work/both.c"
    "$compiler" -w -I"$2" -fsyntax-only "$work/both.c" >&2 || {
        echo "headers_agree: prototypes of $1 and $2/$3 differ" >&2
        result=1
    }
    sort "$work/list" >"$work/list.sorted"
    sort "$work/common" | comm -23 "$work/list.sorted" - | sed "s|^|not in $2/$3: |"
    echo "$1: $(wc -l <"$work/common") of $(wc -l <"$work/list") numbers and" \
        "$(wc -l <"$work/prototypes") prototypes" \
        "compared with $2/$3"
    return $result
}

[ $# -ge 1 ] && [ -f "$1/cuda.h" ] || {
    echo "usage: headers_agree.sh CUDA_INCLUDE_DIR [NVML_INCLUDE_DIR]" >&2
    exit 2
}
compare hami_cuda.h "$1" cuda.h
status=$?
if [ -f "${2:-$1}/nvml.h" ]; then
    compare hami_nvml.h "${2:-$1}" nvml.h
    nvml=$?
    [ $nvml -gt $status ] && status=$nvml
else
    echo "hami_nvml.h: not compared, there is no ${2:-$1}/nvml.h"
fi
exit $status
