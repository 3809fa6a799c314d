#!/bin/sh
# Puts the C++ sources of each folder together: BUILD/obj/FOLDER/unit-N.cpp includes at most MOST of them, and BUILD/units.mk
# names the units of each folder (UNITS_folder/ := objects). Files that would not change are not written, so make sees what did.
#
# usage: units.sh BUILD MOST [SOURCE ...]      SOURCEs stay alone
set -eu
build=$1 most=$2
shift 2

find shim policy tools tests -name '*.cpp' | LC_ALL=C sort | awk -v build="$build" -v most="$most" -v alone=" $* " '
function write(path, text,    old, line, parent) {
    while ((getline line < path) > 0) old = old line "\n"
    close(path)
    if (old == text) return
    parent = path; sub("/[^/]*$", "", parent)
    system("mkdir -p " parent)
    printf "%s", text > path
    close(path)
}
index(alone, " " $0 " ") { next }
{
    folder = $0; sub("[^/]*$", "", folder)
    if (!(folder in count)) order[++folders] = folder
    source[folder, ++count[folder]] = $0
}
END {
    for (f = 1; f <= folders; f++) {
        folder = order[f]
        units = int((count[folder] + most - 1) / most)
        names = names "UNITS_" folder " :="
        for (unit = 1; unit <= units; unit++) {
            text = ""
            for (i = int((unit - 1) * count[folder] / units) + 1; i <= int(unit * count[folder] / units); i++)
                text = text "#include \"" source[folder, i] "\"\n"
            name = build "/obj/" folder "unit-" unit
            write(name ".cpp", text)
            names = names " " name ".o"
        }
        names = names "\n"
    }
    write(build "/units.mk", names)
}'
