"""stand_in.py LIBRARY NEWEST OUT: makes a library to link with in place of glibc's LIBRARY. It exports the names that glibc NEWEST had,
each in its newest version up to that, and holds no code. glibc keeps every old version, so this machine's library lists them all."""

import os
import re
import subprocess
import sys

#     12: 000000000009c7b0  1234 FUNC    GLOBAL DEFAULT   16 pthread_create@GLIBC_2.2.5
SYMBOL = re.compile(r"\s(\d+) (FUNC|IFUNC|OBJECT) +(?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)(@@?)GLIBC_([\d.]+)")


def number(version):
    return tuple(map(int, version.split(".")))


def names_until(newest, library):
    """The version of each name that can still be linked with, and the size of each variable."""
    listed = subprocess.run(["readelf", "--wide", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    found = SYMBOL.findall(listed)
    linkable = {name for _, _, name, at, _ in found if at == "@@"}
    versions, sizes = {}, {}
    for size, kind, name, _, version in found:
        if name in linkable and number(versions.get(name, "0")) < number(version) <= number(newest):
            versions[name] = version
            if kind == "OBJECT":
                sizes[name] = size
    return versions, sizes


def definition(name, size):
    section, kind = (".bss", "object") if size else (".text", "function")
    return f"{section}\n.globl {name}\n.type {name}, @{kind}\n.size {name}, {size or 1}\n{name}: .zero {size or 1}\n"


def main():
    library, newest, out = sys.argv[1:]
    versions, sizes = names_until(newest, library)
    with open(f"{out}.map", "w", encoding="utf-8") as script:
        for version in sorted(set(versions.values()), key=number):
            script.write(f"GLIBC_{version} {{ {' '.join(f'{name};' for name in versions if versions[name] == version)} }};\n")
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{os.path.basename(library)},--version-script={out}.map", "-o", out, "-x", "assembler", "-"],
        input="".join(definition(name, sizes.get(name)) for name in versions), text=True, check=True)


if __name__ == "__main__":
    main()
