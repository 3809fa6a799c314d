// How an exported function is made. There are three ways, by how much there is to it:
//
//   a row in forwards.def      the call is one call of the driver with the same arguments
//   RT_EXPORT over a template  the call exists in two forms, for the legacy and the per-thread default stream
//   the function itself        anything else; its body goes through run()
//
// cuda_api.h makes every function that the headers declare visible, so nothing else is needed to export one.
#pragma once

#include <bit>
#include <new>
#include <type_traits>

#include "tools/simcuda/runtime/context.h"
#include "tools/simcuda/runtime/driver.h"
#include "tools/simcuda/runtime/error.h"

namespace simcuda::runtime {

// What stream handle 0 means to the form of a function that was called.
enum class Form { Legacy, PerThread };

// What a body needs before it can run.
enum class Need { Driver, Context };

// Runs the body of an API call with the driver's table: loads the driver, makes a context current if that is
// needed, turns what the body answers or throws into a runtime error and records it.
template <Need need = Need::Context, class Body>
cudaError_t run(Body&& body) noexcept {
    cudaError_t error;
    const Driver* cu = driver(error);
    if (!cu) return record(error);
    try {
        if constexpr (need == Need::Context) require_context(*cu);
        return record(Status(body(*cu)).error);
    } catch (const Failure& failure) {
        return record(failure.error);
    } catch (const std::bad_alloc&) {
        return record(cudaErrorMemoryAllocation);
    } catch (...) {
        return record(cudaErrorUnknown);
    }
}

// A runtime type as the driver's: enumerations and handles share their values, structures their layout.
template <class To, class From>
To as(From from) {
    if constexpr (std::is_same_v<To, From>) {
        return from;
    } else if constexpr (std::is_class_v<To> || std::is_union_v<To>) {
        return std::bit_cast<To>(from);
    } else {
        return (To)from;  // NOLINT: number, pointer or enumeration to another of them
    }
}

template <class... DriverArgs, class... Args>
CUresult pass(CUresult (*function)(DriverArgs...), Args... args) {
    return function(as<DriverArgs>(args)...);
}

template <auto function, Need need, class... Args>
cudaError_t forward(Args... args) {
    return run<need>([&](const Driver& cu) { return pass(cu.*function, args...); });
}

// A function type without the default arguments that GCC keeps with it.
template <class Function>
struct WithoutDefaults;
template <class Result, class... Args>
struct WithoutDefaults<Result(Args...)> {
    using type = Result(Args...);
};

}  // namespace simcuda::runtime

// Exports `name`, with the type its header declares, as another name for a function or a template instance.
#define RT_EXPORT(name, ...)                                                                               \
    extern "C" {                                                                                           \
    __attribute__((used)) static decltype(&::name) resolve_##name() {                                      \
        return __VA_ARGS__;                                                                                \
    }                                                                                                      \
    __attribute__((ifunc("resolve_" #name))) simcuda::runtime::WithoutDefaults<decltype(name)>::type name; \
    }

// Exports both forms of a stream function over `target`, a template on Form. `suffix` is _ptsz or _ptds.
#define RT_EXPORT_STREAM(name, suffix, target) \
    RT_EXPORT(name, target<Form::Legacy>)      \
    RT_EXPORT(name##suffix, target<Form::PerThread>)

// The driver's function in the form that is wanted.
#define RT_DRIVER(cu, form, symbol, suffix) ((form) == Form::PerThread ? (cu).symbol##suffix : (cu).symbol)
