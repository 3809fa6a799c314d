// A callable passed down for the length of a call: what takes one is compiled once, not for each.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace lms::util {

template <typename Signature>
class FunctionRef;

// The callable outlives it.
template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
  public:
    template <typename Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
             std::is_invocable_r_v<Result, Callable&, Arguments...>) FunctionRef(Callable&& callable)
        : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
          call_([](void* that, Arguments... arguments) -> Result {
              return (*static_cast<std::remove_reference_t<Callable>*>(that))(
                  std::forward<Arguments>(arguments)...);
          }) {}

    Result operator()(Arguments... arguments) const {
        return call_(callable_, std::forward<Arguments>(arguments)...);
    }

  private:
    void* callable_;
    Result (*call_)(void*, Arguments...);
};

}  // namespace lms::util
