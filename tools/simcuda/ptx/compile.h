// C text -> shared object on disk: shipped, or made by the system's compiler and kept in a cache that
// processes share.
#pragma once

#include <string>

namespace simcuda::ptx {

// The path of the object shipped for `source`, in the folder "kernels" beside this library; empty if there is
// none, or if the CPU lacks x86-64-v3, which these are compiled for.
std::string shipped(const std::string& source);

// The path of a shared object made from `source`; empty on failure, with the reason. The cache is the folder
// SIMCUDA_CACHE names, else $XDG_CACHE_HOME/simcuda, else ~/.cache/simcuda; its key is the text, the
// compiler, its options and the CPU. Thread-safe and safe between processes: files appear by rename, whole.
std::string compile(const std::string& source, std::string& error);

}  // namespace simcuda::ptx
