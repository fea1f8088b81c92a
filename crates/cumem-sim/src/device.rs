//! Initialisation, versions, errors, devices.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::ptr;

use cumem_sys::{CUdevice, CUdevice_attribute, CUresult, CUuuid};

use crate::fork;
use crate::instance::{Answer, Instance};

pub(crate) unsafe fn init(instance: &Instance, flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if instance.config.devices == 0 {
        return Err(CUresult::CUDA_ERROR_NO_DEVICE);
    }
    fork::watch();
    instance.state().initialised = true;
    Ok(())
}

pub(crate) unsafe fn driver_get_version(instance: &Instance, version: *mut c_int) -> Answer {
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { version.write(instance.config.driver_version) };
    Ok(())
}

/// Names and texts of the codes that the simulated driver answers with.
const ERRORS: &[(CUresult, &[u8], &[u8])] = &[
    (CUresult::CUDA_SUCCESS, b"CUDA_SUCCESS\0", b"no error\0"),
    (
        CUresult::CUDA_ERROR_INVALID_VALUE,
        b"CUDA_ERROR_INVALID_VALUE\0",
        b"invalid argument\0",
    ),
    (
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        b"CUDA_ERROR_OUT_OF_MEMORY\0",
        b"out of memory\0",
    ),
    (
        CUresult::CUDA_ERROR_NOT_INITIALIZED,
        b"CUDA_ERROR_NOT_INITIALIZED\0",
        b"initialization error\0",
    ),
    (
        CUresult::CUDA_ERROR_DEINITIALIZED,
        b"CUDA_ERROR_DEINITIALIZED\0",
        b"driver shutting down\0",
    ),
    (
        CUresult::CUDA_ERROR_NO_DEVICE,
        b"CUDA_ERROR_NO_DEVICE\0",
        b"no CUDA-capable device is detected\0",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_DEVICE,
        b"CUDA_ERROR_INVALID_DEVICE\0",
        b"invalid device ordinal\0",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_CONTEXT,
        b"CUDA_ERROR_INVALID_CONTEXT\0",
        b"invalid device context\0",
    ),
    (
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        b"CUDA_ERROR_CONTEXT_IS_DESTROYED\0",
        b"context is destroyed\0",
    ),
    (
        CUresult::CUDA_ERROR_NOT_SUPPORTED,
        b"CUDA_ERROR_NOT_SUPPORTED\0",
        b"operation not supported\0",
    ),
    (
        CUresult::CUDA_ERROR_UNKNOWN,
        b"CUDA_ERROR_UNKNOWN\0",
        b"unknown error\0",
    ),
];

unsafe fn write_text(found: Option<&'static [u8]>, text: *mut *const c_char) -> Answer {
    let pointer = found.map_or(ptr::null(), |bytes| bytes.as_ptr().cast());
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { text.write(pointer) };
    found.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn get_error_name(
    _instance: &Instance,
    code: CUresult,
    text: *mut *const c_char,
) -> Answer {
    let found = ERRORS.iter().find(|(known, ..)| *known == code);
    // SAFETY: the same promise.
    unsafe { write_text(found.map(|(_, name, _)| *name), text) }
}

pub(crate) unsafe fn get_error_string(
    _instance: &Instance,
    code: CUresult,
    text: *mut *const c_char,
) -> Answer {
    let found = ERRORS.iter().find(|(known, ..)| *known == code);
    // SAFETY: the same promise.
    unsafe { write_text(found.map(|(.., text)| *text), text) }
}

/// The index of a device, if there is one of that number.
pub(crate) fn check_device(instance: &Instance, device: CUdevice) -> Result<usize, CUresult> {
    if (0..instance.config.devices).contains(&device) {
        Ok(device as usize)
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }
}

pub(crate) unsafe fn get(instance: &Instance, device: *mut CUdevice, ordinal: c_int) -> Answer {
    check_device(instance, ordinal)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { device.write(ordinal) };
    Ok(())
}

pub(crate) unsafe fn get_count(instance: &Instance, count: *mut c_int) -> Answer {
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { count.write(instance.config.devices) };
    Ok(())
}

pub(crate) unsafe fn get_name(
    instance: &Instance,
    name: *mut c_char,
    length: c_int,
    device: CUdevice,
) -> Answer {
    check_device(instance, device)?;
    let text = CString::new("cumem simulated device").unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    if length < 1 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let room = bytes.len().min(length as usize);
    // SAFETY: the caller of the driver passes a place for `length` bytes; the last is the zero.
    unsafe {
        name.copy_from_nonoverlapping(bytes.as_ptr().cast(), room);
        name.add(room - 1).write(0);
    }
    Ok(())
}

pub(crate) unsafe fn get_uuid(instance: &Instance, uuid: *mut CUuuid, device: CUdevice) -> Answer {
    check_device(instance, device)?;
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(b"cumem-sim device") {
        *place = *byte as c_char;
    }
    bytes[15] = device as c_char;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { uuid.write(CUuuid { bytes }) };
    Ok(())
}

pub(crate) unsafe fn total_mem(instance: &Instance, bytes: *mut usize, device: CUdevice) -> Answer {
    check_device(instance, device)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { bytes.write(instance.config.memory_per_device) };
    Ok(())
}

pub(crate) unsafe fn get_attribute(
    instance: &Instance,
    value: *mut c_int,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Answer {
    check_device(instance, device)?;
    let concurrent = c_int::from(instance.config.concurrent_managed_access);
    let answer = match attribute {
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => concurrent,
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CUdevice_attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY => 1,
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        // Stream-ordered memory, virtual memory and the rest are not simulated.
        _ => 0,
    };
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { value.write(answer) };
    Ok(())
}

pub(crate) unsafe fn can_access_peer(
    instance: &Instance,
    can: *mut c_int,
    device: CUdevice,
    peer: CUdevice,
) -> Answer {
    check_device(instance, device)?;
    check_device(instance, peer)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { can.write(c_int::from(device != peer)) };
    Ok(())
}
