#!/bin/sh
# Puts the C++ sources of each folder together: BUILD/obj/FOLDER/unit-N.cpp includes at most MOST of them, and BUILD/units.mk
# names the units of each folder (UNITS_folder/ := objects) and the sources of each (SOURCES_object := sources). Files that would
# not change are not written, so make sees what did.
#
# usage: units.sh BUILD MOST ALONE APART      sources that stay alone; sources that share no unit with the rest of their folder
set -eu

find shim policy tools tests -name '*.cpp' | LC_ALL=C sort | awk -v build="$1" -v most="$2" -v alone=" $3 " -v apart=" $4 " '
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
    set = folder " " (index(apart, " " $0 " ") > 0)
    if (!(set in count)) { order[++sets] = set; folder_of[set] = folder }
    source[set, ++count[set]] = $0
}
END {
    for (s = 1; s <= sets; s++) {
        set = order[s]; folder = folder_of[set]
        units = int((count[set] + most - 1) / most)
        for (unit = 1; unit <= units; unit++) {
            text = sources = ""
            for (i = int((unit - 1) * count[set] / units) + 1; i <= int(unit * count[set] / units); i++) {
                text = text "#include \"" source[set, i] "\"\n"
                sources = sources " " source[set, i]
            }
            name = build "/obj/" folder "unit-" ++made[folder]
            write(name ".cpp", text)
            names = names "UNITS_" folder " += " name ".o\nSOURCES_" name ".o :=" sources "\n"
        }
    }
    write(build "/units.mk", names)
}'
