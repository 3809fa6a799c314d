#!/bin/sh
# build/man: a page of lms and one of each of its commands, from their --help.
set -eu
build=${BUILD:-build}
lms=$build/lms

page() { # NAME ABOUT HELP-OPTION
    help2man --no-info --no-discard-stderr --name="$2" --help-option="$3" --version-string="$("$lms" --version)" \
        --manual="lmsshim" --output="$build/man/$1.1" "$lms"
    # It takes the program's path for its name.
    sed -i "s|^\.TH [^ ]* |.TH $(echo "$1" | tr '[:lower:]' '[:upper:]') |; s|^lms \\\\- |$1 \\\\- |" "$build/man/$1.1"
}

rm -rf "$build/man"
mkdir -p "$build/man"
page lms "make a GPU look larger than it is" --help
"$lms" --help | sed -n '/^Subcommands:/,$s/^  \([a-z-]*\)  *\(.*\)/\1 \2/p' | while read -r command about; do
    page "lms-$command" "$about" "$command --help"
done
