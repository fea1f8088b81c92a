//! Devices, versions, errors, initialisation.

use core::ffi::c_uint;

use cumem_sys::{CUdevice_attribute as A, CUresult};

use super::code;
use crate::behaviour::{behaviours, holds, refused, same, skip};

behaviours! {
    area "device";

    /// There is at least one device.
    shared fn count_is_positive(g) {
        holds(g.device_get_count()? > 0, "no device")?;
    }

    /// Every ordinal below the count is a device.
    shared fn every_ordinal_below_the_count_is_one(g) {
        for ordinal in 0..g.device_get_count()? {
            g.device_get(ordinal)?;
        }
    }

    /// The count itself is no ordinal.
    shared fn the_count_is_no_ordinal(g) {
        refused(g.device_get(g.device_get_count()?), code::INVALID_DEVICE)?;
    }

    /// A negative number is no ordinal.
    shared fn a_negative_number_is_no_ordinal(g) {
        refused(g.device_get(-1), code::INVALID_DEVICE)?;
    }

    /// A device has a name.
    shared fn has_a_name(g) {
        holds(!g.device_get_name(g.device())?.is_empty(), "no name")?;
    }

    /// A device has a UUID, the same each time.
    shared fn has_a_uuid(g) {
        let uuid = g.device_get_uuid(g.device())?;
        holds(uuid.bytes.iter().any(|&byte| byte != 0), "all zero")?;
        same(g.device_get_uuid(g.device())?, uuid)?;
    }

    /// Devices have different UUIDs.
    shared fn uuids_differ(g) {
        if g.device_get_count()? < 2 {
            return skip("there is one device");
        }
        let other = g.device_get_uuid(g.device_get(1)?)?;
        holds(other != g.device_get_uuid(g.device())?, "the same")?;
    }

    /// The total of `cuMemGetInfo` is the device's memory.
    shared fn total_memory_is_what_get_info_says(g) {
        let (free, total) = g.mem_get_info()?;
        same(g.device_total_mem(g.device())?, total)?;
        holds(free <= total, "more free than there is")?;
    }

    /// Unified addressing, managed memory, pools and virtual memory are there.
    shared fn has_the_features_of_a_modern_gpu(g) {
        for attribute in [
            A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
            A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
            A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
            A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
            A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
        ] {
            same((attribute, g.device_get_attribute(attribute, g.device())?), (attribute, 1))?;
        }
    }

    /// Memory that the driver doesn't know can't be used by the device.
    shared fn has_no_access_to_pageable_memory(g) {
        let attribute = A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
        same(g.device_get_attribute(attribute, g.device())?, 0)?;
    }

    /// A number that is no attribute is refused.
    shared fn an_unknown_attribute_is_refused(g) {
        refused(g.device_get_attribute(A(100_000), g.device()), code::INVALID_VALUE)?;
    }

    /// An attribute of a device that isn't there is refused.
    shared fn an_attribute_of_no_device_is_refused(g) {
        let attribute = A::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
        refused(g.device_get_attribute(attribute, 1000), code::INVALID_DEVICE)?;
    }

    /// A device is no peer of itself.
    shared fn is_no_peer_of_itself(g) {
        same(g.device_can_access_peer(g.device(), g.device())?, false)?;
    }

    /// Error codes have their C names.
    shared fn codes_have_names(g) {
        let name = g.get_error_name(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        same(name, c"CUDA_ERROR_OUT_OF_MEMORY")?;
        same(g.get_error_name(CUresult::CUDA_SUCCESS)?, c"CUDA_SUCCESS")?;
    }

    /// Error codes have descriptions.
    shared fn codes_have_descriptions(g) {
        same(g.get_error_string(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?, c"out of memory")?;
        same(g.get_error_string(CUresult::CUDA_SUCCESS)?, c"no error")?;
        same(g.get_error_string(code::INVALID_VALUE)?, c"invalid argument")?;
        same(g.get_error_string(code::INVALID_CONTEXT)?, c"invalid device context")?;
    }

    /// An unknown code has neither name nor description.
    shared fn an_unknown_code_is_refused(g) {
        refused(g.get_error_name(CUresult(98_765)), code::INVALID_VALUE)?;
        refused(g.get_error_string(CUresult(98_765)), code::INVALID_VALUE)?;
    }

    /// Initialising again is allowed.
    shared fn can_be_initialised_again(g) {
        let init = super::legacy::init(g)?;
        // SAFETY: any thread may initialise the driver, any number of times.
        same(unsafe { init(0) }, CUresult::CUDA_SUCCESS)?;
    }

    /// Flags of the initialisation must be 0.
    shared fn initialisation_takes_no_flags(g) {
        let init = super::legacy::init(g)?;
        let flags: c_uint = 1;
        // SAFETY: as above; the flags are refused.
        same(unsafe { init(flags) }, code::INVALID_VALUE)?;
    }
}
