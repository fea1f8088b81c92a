//! Saying where memory is to be: a device, or the host.

use core::ffi::c_int;

use crate::bindings::CUmemLocationType;

/// A place for memory: what kind of place, and which one of them. (*Memory Management*)
///
/// Passed to the driver by value. Written by hand, because the header of CUDA 13 makes a union of
/// the second field; `cargo xtask bindgen --check` compares the layout with every header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "the header's name")]
pub struct CUmemLocation_st {
    /// What kind of place.
    pub type_: CUmemLocationType,
    /// Which one: the ordinal of a device, or the number of a NUMA node.
    pub id: c_int,
}

const _: () = {
    assert!(size_of::<CUmemLocation_st>() == 8);
    assert!(align_of::<CUmemLocation_st>() == 4);
    assert!(core::mem::offset_of!(CUmemLocation_st, type_) == 0);
    assert!(core::mem::offset_of!(CUmemLocation_st, id) == 4);
};

impl CUmemLocation_st {
    /// The memory of the device with this ordinal.
    #[must_use]
    pub const fn device(ordinal: i32) -> Self {
        Self {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: ordinal,
        }
    }

    /// The host's memory.
    #[must_use]
    pub const fn host() -> Self {
        Self {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
            id: 0,
        }
    }

    /// The ordinal or number that goes with the location's type.
    #[must_use]
    pub const fn ordinal(&self) -> i32 {
        self.id
    }
}
