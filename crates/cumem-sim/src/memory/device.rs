//! Plain device memory.

use core::ffi::c_uint;

use cumem_sys::{CUdeviceptr, CUresult};

use crate::books::Kind;
use crate::instance::{Answer, Instance, put};
use crate::table::Call;

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemGetInfo_v2(&self, free: *mut usize, total: *mut usize) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        let device = state.context(current)?.device;
        let all = self.config().memory_per_device;
        let left = all - state.device(device)?.used;
        // SAFETY: the caller gave places for two, or null.
        unsafe {
            put(free, left)?;
            put(total, all)
        }
    }

    pub(crate) unsafe fn cuMemAlloc_v2(&self, pointer: *mut CUdeviceptr, bytes: usize) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        if pointer.is_null() || bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let address = self.allocate(&mut state, Kind::Device, 0, current, bytes)?;
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(pointer, address) }
    }

    pub(crate) unsafe fn cuMemFree_v2(&self, pointer: CUdeviceptr) -> Answer {
        self.free(pointer, Call::cuMemFree_v2, |kind| {
            matches!(kind, Kind::Device | Kind::Managed | Kind::StreamOrdered)
        })
    }

    pub(crate) unsafe fn cuMemGetAddressRange_v2(
        &self,
        base: *mut CUdeviceptr,
        bytes: *mut usize,
        pointer: CUdeviceptr,
    ) -> Answer {
        let state = self.state();
        self.current(&state)?;
        let (start, allocation) = state.find(pointer).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: the caller gave places for two; either may be null.
        unsafe {
            if !base.is_null() {
                put(base, start)?;
            }
            if !bytes.is_null() {
                put(bytes, allocation.bytes)?;
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuDeviceTotalMem(
        &self,
        bytes: *mut c_uint,
        device: cumem_sys::CUdevice,
    ) -> Answer {
        self.is_device(device)?;
        let clamped = c_uint::try_from(self.config().memory_per_device).unwrap_or(c_uint::MAX);
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(bytes, clamped) }
    }
}
