//! The entry points of CUDA 3.1 under their old names.
//!
//! They are still exported, with device pointers and sizes of 32 bits, and they refuse every
//! context of today's API. The simulated driver answers as the real one was seen to, so that code
//! that resolves an unversioned name fails here as it fails there.

use core::ffi::{c_uint, c_void};

use cumem_sys::{CUcontext, CUdevice, CUresult, CUstream};

use crate::instance::{Answer, Instance};

/// What they answer, whether a context is current or not.
const REFUSED: Answer = Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    /// A context of the old API can't be made here.
    pub(crate) unsafe fn cuCtxCreate(
        &self,
        _context: *mut CUcontext,
        _flags: c_uint,
        _device: CUdevice,
    ) -> Answer {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    pub(crate) unsafe fn cuMemGetInfo(&self, _free: *mut c_uint, _total: *mut c_uint) -> Answer {
        REFUSED
    }

    /// Overwrites the low 32 bits of the out parameter all the same.
    pub(crate) unsafe fn cuMemAlloc(&self, pointer: *mut c_uint, _bytes: c_uint) -> Answer {
        if !pointer.is_null() {
            // SAFETY: the caller gave a place for at least 32 bits.
            unsafe { pointer.write_unaligned(0) };
        }
        REFUSED
    }

    pub(crate) unsafe fn cuMemFree(&self, _pointer: c_uint) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemGetAddressRange(
        &self,
        _base: *mut c_uint,
        _bytes: *mut c_uint,
        _pointer: c_uint,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemHostGetDevicePointer(
        &self,
        _device_pointer: *mut c_uint,
        _pointer: *mut c_void,
        _flags: c_uint,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemcpyHtoD(
        &self,
        _to: c_uint,
        _from: *const c_void,
        _bytes: c_uint,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemcpyDtoH(
        &self,
        _to: *mut c_void,
        _from: c_uint,
        _bytes: c_uint,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemcpyDtoD(&self, _to: c_uint, _from: c_uint, _bytes: c_uint) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemcpyHtoDAsync(
        &self,
        _to: c_uint,
        _from: *const c_void,
        _bytes: c_uint,
        _stream: CUstream,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemcpyDtoHAsync(
        &self,
        _to: *mut c_void,
        _from: c_uint,
        _bytes: c_uint,
        _stream: CUstream,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemcpyDtoDAsync(
        &self,
        _to: c_uint,
        _from: c_uint,
        _bytes: c_uint,
        _stream: CUstream,
    ) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemsetD8(&self, _to: c_uint, _value: u8, _count: c_uint) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemsetD16(&self, _to: c_uint, _value: u16, _count: c_uint) -> Answer {
        REFUSED
    }

    pub(crate) unsafe fn cuMemsetD32(&self, _to: c_uint, _value: u32, _count: c_uint) -> Answer {
        REFUSED
    }
}
