//! Moving bytes, through the host or through the driver.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use cumem_backend::{DeviceContext, Entered, HostAccess, to_device_ptr};
use cumem_sys::{CUdevice_attribute, CuError, Driver};

use crate::access::DriverBackend;
use crate::error::{Cause, Error};

/// Whether the host may touch the backend's memory at any time.
///
/// Managed memory is shared with every device, so it takes one without concurrent managed access to
/// forbid it.
pub(crate) fn host_may_touch<B: DriverBackend>(backend: &B) -> Result<bool, Error> {
    match backend.host_access() {
        HostAccess::Always => Ok(true),
        HostAccess::Managed => {
            let driver = backend.driver()?;
            all_devices_concurrent(driver).map_err(|error| Error::call("query the devices", error))
        }
        _ => Ok(false),
    }
}

fn all_devices_concurrent(driver: &Driver) -> Result<bool, CuError> {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    for ordinal in 0..driver.device_get_count()? {
        let device = driver.device_get(ordinal)?;
        if driver.device_get_attribute(attribute, device)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// # Errors
/// Unless the host may touch the memory at any time.
pub(super) fn check_host<B: DriverBackend>(host: bool, backend: &B) -> Result<(), Error> {
    if host {
        return Ok(());
    }
    let kind = backend.kind_name();
    Err(match backend.host_access() {
        HostAccess::Managed => Cause::HostOnlyWhenIdle { kind },
        _ => Cause::HostNever { kind },
    }
    .into())
}

/// # Errors
/// Unless the host may touch the backend's memory at any time.
#[cfg(any(feature = "allocator-api2", feature = "nightly"))]
pub(crate) fn check_backend<B: DriverBackend>(backend: &B) -> Result<(), Error> {
    check_host(host_may_touch(backend)?, backend)
}

/// Has the driver work on memory that it knows at `place`, in that memory's context, and waits until
/// the work is done.
fn work<B: DriverBackend>(
    backend: &B,
    place: NonNull<u8>,
    doing: &'static str,
    call: impl FnOnce(&Driver) -> Result<(), CuError>,
) -> Result<(), Error> {
    let driver = backend.driver()?;
    let done = in_context(driver, backend.device(), place, || {
        call(driver)?;
        // A copy or a set may return before it is done; it is in the null stream's order.
        // SAFETY: null is the null stream of the context that is current.
        unsafe { driver.stream_synchronize(ptr::null_mut()) }
    });
    done.map_err(|error| Error::call(doing, error))
}

/// Calls `call` with the context of the memory current, or that of its device where the memory
/// belongs to no context, as memory of a pool.
fn in_context(
    driver: &Driver,
    ordinal: i32,
    place: NonNull<u8>,
    call: impl FnOnce() -> Result<(), CuError>,
) -> Result<(), CuError> {
    let pointer = to_device_ptr(place.as_ptr());
    match driver.pointer_context(pointer) {
        Ok(context) if !context.is_null() => {
            let _entered = Entered::context_of(driver, pointer)?;
            call()
        }
        _ => {
            let device = DeviceContext::retain(driver, ordinal)?;
            let _entered = device.enter()?;
            call()
        }
    }
}

/// # Safety
/// `to` is live memory of `backend` with `bytes` bytes that nothing else uses.
pub(super) unsafe fn clear<B: DriverBackend>(
    backend: &B,
    host: bool,
    to: NonNull<u8>,
    bytes: usize,
) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    if host && backend.host_access() == HostAccess::Always {
        // SAFETY: the host may touch it, and the caller promises the rest.
        unsafe { to.write_bytes(0, bytes) };
        return Ok(());
    }
    work(backend, to, "clear memory", |driver| {
        // SAFETY: the caller's promise.
        unsafe { driver.memset_d8(to_device_ptr(to.as_ptr()), 0, bytes) }
    })
}

/// # Safety
/// `to` is live memory of `backend` with `bytes` bytes that nothing else uses, `from` as many bytes
/// of ordinary memory.
pub(super) unsafe fn upload<B: DriverBackend>(
    backend: &B,
    host: bool,
    to: NonNull<u8>,
    from: *const u8,
    bytes: usize,
) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    if host && backend.host_access() == HostAccess::Always {
        // SAFETY: the host may touch it, and the caller promises the rest.
        unsafe { to.as_ptr().copy_from(from, bytes) };
        return Ok(());
    }
    work(backend, to, "copy to the device", |driver| {
        // SAFETY: the caller's promise.
        unsafe { driver.memcpy_htod(to_device_ptr(to.as_ptr()), from.cast::<c_void>(), bytes) }
    })
}

/// # Safety
/// `from` is live memory of `backend` with `bytes` bytes that nothing writes, `to` as many bytes of
/// ordinary memory that nothing else uses.
pub(super) unsafe fn download<B: DriverBackend>(
    backend: &B,
    host: bool,
    to: *mut u8,
    from: NonNull<u8>,
    bytes: usize,
) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    if host && backend.host_access() == HostAccess::Always {
        // SAFETY: the host may touch it, and the caller promises the rest.
        unsafe { to.copy_from(from.as_ptr(), bytes) };
        return Ok(());
    }
    work(backend, from, "copy from the device", |driver| {
        // SAFETY: the caller's promise.
        unsafe { driver.memcpy_dtoh(to.cast::<c_void>(), to_device_ptr(from.as_ptr()), bytes) }
    })
}

/// # Safety
/// `to` is live memory of `backend` with `bytes` bytes that nothing else uses, `from` live memory of
/// the same driver with as many bytes that nothing writes; they don't overlap.
pub(super) unsafe fn transfer<B: DriverBackend>(
    backend: &B,
    to: NonNull<u8>,
    from: NonNull<u8>,
    bytes: usize,
) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    work(backend, to, "copy between buffers", |driver| {
        let (to, from) = (to_device_ptr(to.as_ptr()), to_device_ptr(from.as_ptr()));
        // SAFETY: the caller's promise.
        unsafe { driver.memcpy(to, from, bytes) }
    })
}
