"""Makes a wheel of a folder: wheel.py FOLDER VERSION WHERE. The format is packaging.python.org's "Binary distribution format";
links become files. Python's standard library only: what makes wheels of sources would be one more thing to have."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile

METADATA = """Metadata-Version: 2.1
Name: lmsshim
Version: {version}
Summary: Makes any GPU look larger than it is, for any CUDA program
License: Apache-2.0
Requires-Python: >=3.8
"""
WHEEL = """Wheel-Version: 1.0
Generator: lmsshim
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
ENTRY_POINTS = "[console_scripts]\nlms = lms.__main__:main\n"


def files_below(folder):
    for where, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = os.path.join(where, name)
            yield os.path.relpath(path, folder), path


def platform(folder):
    """manylinux by the newest glibc that a file asks for (PEP 600): 2.28, which all are linked for, or what one has more."""
    newest = (2, 28)
    for _, path in files_below(folder):
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        said = subprocess.run(["readelf", "-V", path], capture_output=True, text=True, check=True).stdout
        versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)\b", said)]
        newest = max([newest, *versions])
    return f"manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def main():
    folder, version, where = sys.argv[1:]
    tag = platform(folder)
    info = f"lmsshim-{version}.dist-info"
    contents = {name: (open(path, "rb").read(), os.stat(path).st_mode) for name, path in files_below(folder)}
    contents[f"{info}/METADATA"] = (METADATA.format(version=version).encode(), 0o644)
    contents[f"{info}/WHEEL"] = (WHEEL.format(platform=tag).encode(), 0o644)
    contents[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), 0o644)
    contents[f"{info}/LICENSE"] = (open("LICENSE", "rb").read(), 0o644)
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, (data, _) in contents.items())
    contents[f"{info}/RECORD"] = ((record + f"{info}/RECORD,,\n").encode(), 0o644)
    path = os.path.join(where, f"lmsshim-{version}-py3-none-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, mode) in contents.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | (mode & 0o777)) << 16
            wheel.writestr(entry, data)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
