#!/bin/sh
# The README's commands on a bare machine: a Debian root made by debootstrap, as root and without a CUDA toolkit.
#
#   COMMANDS="demo test" sh tests/bare.sh
#   COMMANDS=wheel sh tests/bare.sh
#
# COMMANDS are make's targets, run in that order (default: demo test) in a copy of HEAD, not of the working tree, on Debian 12 with
# g++ and make alone. `wheel` by itself installs the wheel that lies in BUILD and runs `lms demo`, on Debian 11 with pip alone: its
# glibc, 2.31, is the oldest that Debian's mirrors have. The package registries are reached as from this
# machine: its Debian mirror, the configuration of apt and pip, proxy variables, certificates. One line each tells a command's
# result and time. The status is 0 if every command passed, 77 where the root cannot be made.
# The root lies below BUILD (`make test` takes 7 GiB) and is removed in any case.
set -u
cd "$(dirname "$0")/.." || exit 1
release=bookworm
suite=$release packages=g++,make,ca-certificates
if [ "${COMMANDS:=demo test}" = wheel ]; then
    suite=bullseye packages=python3-pip
fi

say() { printf 'bare: %s\n' "$*"; }

# Lines of sources.list: what this machine's apt reads of the same release.
sources() {
    # shellcheck disable=SC2016 # apt's own names
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite=$release 'index($3, suite) == 1 && $4 == "main" && !seen[$0]++'
}

# copy PATH [TO]: into the root, over the files that are already there.
copy() {
    [ -e "$1" ] || return 0
    mkdir -p "$(dirname "$root${2:-$1}")" && cp -RL -T "$1" "$root${2:-$1}"
}

make_root() {
    mirror=$(sources | awk -v suite=$release '$3 == suite { print $2; exit }')
    # shellcheck disable=SC2086 # without a mirror the default one
    if ! debootstrap --variant=minbase --include=$packages $suite "$root" $mirror >"$folder/log" 2>&1; then
        tail -n 20 "$folder/log"
        return 1
    fi
    [ -z "$mirror" ] || sources >"$root/etc/apt/sources.list"
    for path in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/pip.conf /etc/resolv.conf /etc/hosts \
        /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt; do
        copy $path || return 1
    done
    copy "$HOME/.config/pip" /root/.config/pip && copy "$HOME/.pip" /root/.pip || return 1
    mkdir "$root/lmsshim" && git archive HEAD | tar -x -C "$root/lmsshim" || return 1
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev"
}

# in_root COMMAND...: of the caller's environment only what reaches the registries.
in_root() {
    # shellcheck disable=SC2046 # a list of NAME=VALUE
    env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 $(env |
        grep -iE '^(https?_proxy|no_proxy|all_proxy|PIP_[A-Z_]+|SSL_CERT_[A-Z]+|(REQUESTS|CURL)_CA_BUNDLE)=[^ ]*$') \
        chroot "$root" "$@"
}

run_command() {
    if [ "$1" = wheel ]; then
        cp "${BUILD:-build}"/lmsshim-*.whl "$root/root/" && in_root sh -c 'pip3 install -q --no-index /root/*.whl && lms demo'
    else
        in_root make -C /lmsshim "$1"
    fi
}

# Runs in namespaces of its own: no mount is seen outside, and every process ends with the first.
run_commands() {
    if ! make_root; then
        say "the root could not be made"
        return 1
    fi
    status=0
    for command in $COMMANDS; do
        begin=$(date +%s) result=passed
        run_command "$command" || result=failed status=1
        say "$command: $result after $(($(date +%s) - begin)) s"
    done
    return $status
}

if [ "${1:-}" = inside ]; then
    folder=$2 root=$2/root
    run_commands
    exit
fi

cannot() {
    say "not run: $*"
    exit 77
}
[ "$(id -u)" = 0 ] || cannot "only root can make a Debian root"
for command in debootstrap unshare git; do
    command -v $command >/dev/null 2>&1 || cannot "$command is not installed"
done
unshare --mount --pid --fork true 2>/dev/null || cannot "mount and process namespaces are not allowed here"

mkdir -p "${BUILD:-build}"
folder=$(mktemp -d "$(cd "${BUILD:-build}" && pwd)/bare.XXXXXX") || exit 1
child=
end() {
    trap '' INT TERM HUP
    [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null
    if grep -qF " $folder/" /proc/self/mounts; then
        say "$folder is left: a file system is mounted in it"
        return
    fi
    # Once more for the files of processes that were still ending.
    rm -rf --one-file-system "$folder" || { sleep 1 && rm -rf --one-file-system "$folder"; }
}
trap end EXIT
trap 'exit 130' INT TERM HUP

git diff --quiet HEAD || say "uncommitted changes are left out"
unshare --mount --propagation private --pid --fork --kill-child sh tests/bare.sh inside "$folder" &
child=$!
wait "$child"
status=$?
child=
exit $status
