// What the whole library allocates with: as the standard library does, and from the reserve where malloc()
// refuses. Much of what a hook does must not stop half-way: work that has been submitted is to be fenced,
// what was held is to be let go.
#include <cstdlib>
#include <new>

#include "shim/util/reserve.h"

// A sanitizer brings its own, which see more.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

void* allocate(std::size_t bytes) noexcept {
    void* const place = std::malloc(bytes == 0 ? 1 : bytes);
    return place ? place : lms::util::reserve.take(bytes);
}

void* allocate(std::size_t bytes, std::align_val_t alignment) noexcept {
    const auto align = static_cast<std::size_t>(alignment);
    void* const place = std::aligned_alloc(align, (bytes + align - 1) / align * align);
    return place ? place : lms::util::reserve.take(bytes, align);
}

void* or_throw(void* place) {
    if (!place) throw std::bad_alloc();
    return place;
}

void give_back(void* place) noexcept {
    if (lms::util::reserve.owns(place)) return lms::util::reserve.give_back(place);
    std::free(place);
}

}  // namespace

void* operator new(std::size_t bytes) {
    return or_throw(allocate(bytes));
}
void* operator new[](std::size_t bytes) {
    return or_throw(allocate(bytes));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return or_throw(allocate(bytes, alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return or_throw(allocate(bytes, alignment));
}
void operator delete(void* place) noexcept {
    give_back(place);
}
void operator delete[](void* place) noexcept {
    give_back(place);
}
void operator delete(void* place, std::size_t) noexcept {
    give_back(place);
}
void operator delete[](void* place, std::size_t) noexcept {
    give_back(place);
}
void operator delete(void* place, std::align_val_t) noexcept {
    give_back(place);
}
void operator delete[](void* place, std::align_val_t) noexcept {
    give_back(place);
}
void operator delete(void* place, std::size_t, std::align_val_t) noexcept {
    give_back(place);
}
void operator delete[](void* place, std::size_t, std::align_val_t) noexcept {
    give_back(place);
}

#endif
