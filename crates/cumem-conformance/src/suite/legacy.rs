//! Old names, and finding entry points by version.

use core::ffi::{CStr, c_uint, c_void};

use cumem_sys::{CUdriverProcAddressQueryResult as Status, CUresult};

use super::{KIB, code};
use crate::behaviour::{Check, behaviours, call, holds, refused, same};
use crate::ground::Ground;

pub(super) type Init = unsafe extern "C" fn(c_uint) -> CUresult;

/// The driver's `cuInit`.
pub(super) fn init(g: &Ground<'_>) -> Check<Init> {
    let found = g.export(c"cuInit")?;
    // SAFETY: it is the driver's function of that name, which has that form.
    Ok(unsafe { core::mem::transmute::<*mut c_void, Init>(found) })
}

fn found(g: &Ground<'_>, name: &CStr, version: i32) -> Check<*mut c_void> {
    let (address, status) = g.get_proc_address(name, version)?;
    same(status, Status::CU_GET_PROC_ADDRESS_SUCCESS)?;
    holds(!address.is_null(), "null with success")?;
    Ok(address)
}

behaviours! {
    area "legacy";

    /// The old `cuMemFree` frees nothing: its pointers have 32 bits.
    shared fn mem_free_frees_nothing(g) {
        type Free = unsafe extern "C" fn(c_uint) -> CUresult;
        // SAFETY: the export of that name has that form.
        let free = unsafe { core::mem::transmute::<*mut c_void, Free>(g.export(c"cuMemFree")?) };
        let pointer = g.managed(4 * KIB)?;
        // SAFETY: the driver checks the context first, and refuses it.
        same(unsafe { free(pointer as c_uint) }, code::INVALID_CONTEXT)?;
        g.mem_get_address_range(pointer)?;
        call!(g.mem_free(pointer))?;
    }

    /// The old `cuMemAlloc` allocates nothing, and overwrites half of the pointer.
    shared fn mem_alloc_allocates_nothing(g) {
        type Alloc = unsafe extern "C" fn(*mut c_uint, c_uint) -> CUresult;
        let found = g.export(c"cuMemAlloc")?;
        // SAFETY: the export of that name has that form.
        let alloc = unsafe { core::mem::transmute::<*mut c_void, Alloc>(found) };
        let mut pointer = u64::MAX;
        // SAFETY: the call writes at most 32 bits of the 64 that are there.
        let code = unsafe { alloc((&raw mut pointer).cast(), 4096) };
        same(code, code::INVALID_CONTEXT)?;
        same(pointer >> 32, u64::from(u32::MAX))?;
        g.note(format!("the low half became {:#x}", pointer as u32));
    }

    /// The old names of what had 32-bit sizes are all still exported.
    shared fn old_names_are_exported(g) {
        for name in [
            c"cuMemAlloc", c"cuMemFree", c"cuMemGetInfo", c"cuCtxCreate", c"cuMemcpyHtoD",
            c"cuMemcpyDtoH", c"cuMemcpyDtoD", c"cuMemsetD8", c"cuMemsetD32", c"cuDeviceTotalMem",
            c"cuMemHostGetDevicePointer", c"cuMemGetAddressRange", c"cuMemHostRegister",
            c"cuCtxDestroy", c"cuCtxPushCurrent", c"cuCtxPopCurrent", c"cuStreamDestroy",
            c"cuEventDestroy", c"cuDevicePrimaryCtxRelease", c"cuGetProcAddress",
        ] {
            g.export(name)?;
        }
    }

    /// Asked by version, `cuMemAdvise` is the old form before 12.2 and the new one from then on.
    shared fn the_version_chooses_the_form_of_advise(g) {
        same(found(g, c"cuMemAdvise", 8000)?, g.export(c"cuMemAdvise")?)?;
        same(found(g, c"cuMemAdvise", 12010)?, g.export(c"cuMemAdvise")?)?;
        same(found(g, c"cuMemAdvise", 12020)?, g.export(c"cuMemAdvise_v2")?)?;
        same(found(g, c"cuMemAdvise", 13000)?, g.export(c"cuMemAdvise_v2")?)?;
    }

    /// Asked at a modern version, `cuMemFree` is the one with 64-bit pointers.
    shared fn the_version_chooses_the_modern_free(g) {
        same(found(g, c"cuMemFree", 12000)?, g.export(c"cuMemFree_v2")?)?;
        same(found(g, c"cuMemAlloc", 12000)?, g.export(c"cuMemAlloc_v2")?)?;
        same(found(g, c"cuMemGetInfo", 12000)?, g.export(c"cuMemGetInfo_v2")?)?;
    }

    /// Asked at version 2.0, `cuMemFree` is the one with 32-bit pointers.
    shared fn the_version_chooses_the_old_free(g) {
        same(found(g, c"cuMemFree", 2000)?, g.export(c"cuMemFree")?)?;
    }

    /// An unknown name is answered with success and a null pointer.
    shared fn an_unknown_name_is_null_with_success(g) {
        let (address, status) = g.get_proc_address(c"cuNoSuchFunction", 13000)?;
        same(address.is_null(), true)?;
        same(status, Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)?;
    }

    /// A version before the function came is told apart from an unknown name.
    shared fn a_version_too_low_is_told_apart(g) {
        let (address, status) = g.get_proc_address(c"cuMemAllocAsync", 11000)?;
        same(address.is_null(), true)?;
        same(status, Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)?;
    }

    /// A version above the driver's own is refused.
    shared fn a_version_above_the_drivers_is_refused(g) {
        refused(g.get_proc_address(c"cuMemFree", g.driver_version() + 10), code::INVALID_VALUE)?;
    }

    /// A version before `cuMemAdvise` came is told apart from an unknown name.
    shared fn advise_is_younger_than_the_first_version(g) {
        let (address, status) = g.get_proc_address(c"cuMemAdvise", 2000)?;
        same(address.is_null(), true)?;
        same(status, Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)?;
    }

    /// Names with their version suffix aren't found: the version argument chooses.
    shared fn a_name_with_its_suffix_is_unknown(g) {
        let (address, status) = g.get_proc_address(c"cuMemFree_v2", 13000)?;
        same(address.is_null(), true)?;
        same(status, Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)?;
    }

    /// Every entry point that cumem binds is exported, as far as the driver is new enough.
    shared fn everything_bound_is_exported(g) {
        let mut missing = Vec::new();
        for (symbol, found) in g.symbols() {
            if found.is_none() && symbol.since() as i32 <= g.driver_version() {
                missing.push(symbol.name());
            }
        }
        same(missing, Vec::new())?;
    }
}
