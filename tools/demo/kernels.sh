#!/bin/sh
# build/sim/kernels: the objects of the demo's kernels and the shim's, for machines without a compiler. They are what one step of
# the demo leaves in the simulated GPU's cache, compiled for any x86-64-v3 CPU and for glibc 2.28.
set -eu
build=$(cd "${BUILD:-build}" && pwd)
work=$build/kernels
rm -rf "$work" "$build/sim/kernels"
mkdir -p "$work/bin" "$work/made"

# Of options that contradict each other the last one counts.
cat >"$work/bin/cc" <<END
#!/bin/sh
exec ${CC:-gcc} "\$@" -march=x86-64-v3 -mtune=generic -s -L$build/glibc
END
chmod +x "$work/bin/cc"
PATH=$work/bin:$PATH SIMCUDA_CACHE='' XDG_CACHE_HOME=$work/cache SIMCUDA_MEMORY=48M LD_LIBRARY_PATH=$build/sim \
    LD_PRELOAD=$build/liblmsshim.so "$build/demo" --memory 96M --steps 1 LICENSE >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

# The cache's names end in the machine's compiler and CPU.
for object in "$work"/cache/simcuda/*.so; do
    name=$(basename "$object" .so)
    mv "$object" "$work/made/${name%-*}.so"
done
# `lms self-check` loads the shim's own. The shim starts it, and goes on without it where it takes long.
grep -q lms_trial "$work"/made/*.so || { echo "kernels.sh: the shim's own kernel was not compiled"; exit 1; }
mv "$work/made" "$build/sim/kernels"
