//! Page-locked host memory: made by the driver, or the program's own.

use core::ffi::{c_uint, c_void};
use core::ptr;

use cumem_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY, CU_MEMHOSTREGISTER_PORTABLE,
    CU_MEMHOSTREGISTER_READ_ONLY, CUdeviceptr, CUresult,
};

use super::{Allocation, Store};
use crate::books::Kind;
use crate::instance::{Answer, Instance, put};
use crate::table::Call;

const ALLOCATION_FLAGS: c_uint =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

const REGISTRATION_FLAGS: c_uint = CU_MEMHOSTREGISTER_PORTABLE
    | CU_MEMHOSTREGISTER_DEVICEMAP
    | CU_MEMHOSTREGISTER_IOMEMORY
    | CU_MEMHOSTREGISTER_READ_ONLY;

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemHostAlloc(
        &self,
        pointer: *mut *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        if pointer.is_null() || flags & !ALLOCATION_FLAGS != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let address = if bytes == 0 {
            0
        } else {
            // With unified addressing, all of it is mapped, for every context.
            let flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
            self.allocate(&mut state, Kind::Pinned, flags, current, bytes)?
        };
        let host: *mut c_void = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(pointer, host) }
    }

    pub(crate) unsafe fn cuMemFreeHost(&self, pointer: *mut c_void) -> Answer {
        self.free(pointer.addr() as u64, Call::cuMemFreeHost, |kind| {
            kind == Kind::Pinned
        })
    }

    pub(crate) unsafe fn cuMemHostGetDevicePointer_v2(
        &self,
        device_pointer: *mut CUdeviceptr,
        pointer: *mut c_void,
        flags: c_uint,
    ) -> Answer {
        let state = self.state();
        self.current(&state)?;
        let address = pointer.addr() as u64;
        let known = state.find(address).is_some_and(|(_, one)| one.is_pinned());
        if !known || flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(device_pointer, address) }
    }

    pub(crate) unsafe fn cuMemHostGetFlags(
        &self,
        flags: *mut c_uint,
        pointer: *mut c_void,
    ) -> Answer {
        let state = self.state();
        self.current(&state)?;
        let (_, allocation) = state
            .find(pointer.addr() as u64)
            .filter(|(_, one)| one.is_pinned())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(flags, allocation.flags) }
    }

    pub(crate) unsafe fn cuMemHostRegister_v2(
        &self,
        pointer: *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        let start = pointer.expose_provenance() as u64;
        let end = start.checked_add(bytes as u64);
        if pointer.is_null() || bytes == 0 || end.is_none() || flags & !REGISTRATION_FLAGS != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let end = start + bytes as u64;
        // What is pinned is pinned in whole pages.
        let page = 4096;
        let (first, last) = (start / page * page, end.next_multiple_of(page));
        let overlaps = state
            .allocations
            .range(..last)
            .next_back()
            .filter(|&(&base, one)| base + one.bytes as u64 > first);
        match overlaps.map(|(_, one)| one.kind) {
            Some(Kind::Registered) => {
                return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
            }
            Some(_) => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            None => {}
        }
        self.charge(&mut state, Kind::Pinned, 0, bytes)?;
        let device = state.context(current)?.device;
        let store = Store::Host(start);
        let mut allocation = Allocation::new(Kind::Registered, bytes, store, device);
        allocation.context = current;
        allocation.flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
        state.insert(start, allocation);
        Ok(())
    }

    pub(crate) unsafe fn cuMemHostRegister(
        &self,
        pointer: *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) -> Answer {
        // SAFETY: passed on; the form is the same.
        unsafe { self.cuMemHostRegister_v2(pointer, bytes, flags) }
    }

    pub(crate) unsafe fn cuMemHostUnregister(&self, pointer: *mut c_void) -> Answer {
        if pointer.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.state();
        let address = pointer.addr() as u64;
        let kind = state.allocations.get(&address).map(|one| one.kind);
        if kind != Some(Kind::Registered) {
            let inside = state.find(address).map(|(_, one)| one.kind);
            state
                .history
                .refused(address, Call::cuMemHostUnregister, inside);
            return Err(match inside {
                Some(_) => CUresult::CUDA_ERROR_INVALID_VALUE,
                None => CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
            });
        }
        let Some(allocation) = state.remove(address) else {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        };
        let ends = state.ends_of_context(allocation.context);
        let mut state = self.wait_for(state, &ends);
        state.give_back(&allocation);
        Ok(())
    }
}
