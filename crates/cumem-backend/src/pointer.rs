//! Between the driver's device pointers, which are integers, and Rust's pointers.

use cumem_sys::CUdeviceptr;

/// The pointer for an address that the driver gave out.
///
/// The memory behind it was made outside the program's view, so its provenance is an exposed one.
/// Whether the host may use it, the kind of memory says.
#[must_use]
#[inline]
pub fn from_device_ptr(device_ptr: CUdeviceptr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(device_ptr as usize)
}

/// The address to give back to the driver.
#[must_use]
#[inline]
pub fn to_device_ptr(ptr: *mut u8) -> CUdeviceptr {
    ptr.expose_provenance() as CUdeviceptr
}
