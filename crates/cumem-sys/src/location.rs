//! Saying where memory is to be: a device, or the host.

use crate::bindings::{CUmemLocation, CUmemLocation_st__bindgen_ty_1, CUmemLocationType};

impl CUmemLocation {
    /// The memory of the device with this ordinal.
    #[must_use]
    pub const fn device(ordinal: i32) -> Self {
        Self {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: ordinal },
        }
    }

    /// The host's memory.
    #[must_use]
    pub const fn host() -> Self {
        Self {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
            __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: 0 },
        }
    }

    /// The ordinal or number that goes with the location's type.
    #[must_use]
    pub const fn ordinal(&self) -> i32 {
        // SAFETY: every field of the union is made of integers, for which any bytes are valid, and
        // the constructors fill the largest one.
        unsafe { self.__bindgen_anon_1.id }
    }
}
