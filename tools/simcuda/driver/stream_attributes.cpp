// What cuStreamSetAttribute keeps.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

void check(CUstreamAttrID which) {
    switch (which) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            return;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

}  // namespace

void check_access_window(const CUaccessPolicyWindow& window) {
    require(window.hitRatio >= 0.0f && window.hitRatio <= 1.0f, CUDA_ERROR_INVALID_VALUE);
    require(window.hitProp >= CU_ACCESS_PROPERTY_NORMAL && window.hitProp <= CU_ACCESS_PROPERTY_PERSISTING,
            CUDA_ERROR_INVALID_VALUE);
    require(window.missProp == CU_ACCESS_PROPERTY_NORMAL || window.missProp == CU_ACCESS_PROPERTY_STREAMING,
            CUDA_ERROR_INVALID_VALUE);
}

CUstreamAttrValue Stream::attribute(CUstreamAttrID which) const {
    check(which);
    std::lock_guard lock(attributes_mutex_);
    const auto it = attributes_.find(which);
    if (it != attributes_.end()) return it->second;
    CUstreamAttrValue value{};
    if (which == CU_LAUNCH_ATTRIBUTE_PRIORITY) value.priority = priority;
    if (which == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.syncPolicy = CU_SYNC_POLICY_AUTO;
    return value;
}

void Stream::set_attribute(CUstreamAttrID which, const CUstreamAttrValue& value) {
    check(which);
    if (which == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) check_access_window(value.accessPolicyWindow);
    std::lock_guard lock(attributes_mutex_);
    attributes_[which] = value;
}

void Stream::copy_attributes(const Stream& from) {
    if (&from == this) return;
    std::scoped_lock lock(attributes_mutex_, from.attributes_mutex_);
    attributes_ = from.attributes_;
}

}  // namespace simcuda::driver
