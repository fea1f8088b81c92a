//! Copies and sets, which move real bytes and are done when the call returns.

use std::ffi::c_void;
use std::ptr;

use cumem_sys::{CUdeviceptr, CUresult};

use crate::context::current;
use crate::instance::{Answer, Instance, State};
use crate::memory::block_at;

/// Where the bytes of a range of the driver's memory are.
fn device_bytes(state: &mut State, pointer: u64, bytes: usize) -> Result<*mut u8, CUresult> {
    let refusal = CUresult::CUDA_ERROR_INVALID_VALUE;
    let (start, block) = block_at(state, pointer).ok_or(refusal)?;
    if bytes as u64 > block.size as u64 - (pointer - start) {
        return Err(refusal);
    }
    let memory = block.memory;
    let place = state
        .space(memory)
        .bytes_at(pointer as usize)
        .ok_or(refusal)?;
    Ok(ptr::with_exposed_provenance_mut(place))
}

/// Where the bytes of an address are that may also be ordinary host memory.
fn any_bytes(state: &mut State, pointer: u64, bytes: usize) -> Result<*mut u8, CUresult> {
    if block_at(state, pointer).is_some() {
        device_bytes(state, pointer, bytes)
    } else {
        Ok(ptr::with_exposed_provenance_mut(pointer as usize))
    }
}

/// # Safety
/// Both sides are valid for `bytes` bytes.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { to.copy_from(from, bytes) };
}

pub(crate) unsafe fn host_to_device(
    instance: &Instance,
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
) -> Answer {
    let mut state = instance.state();
    current(instance, &state)?;
    if bytes > 0 {
        let to = device_bytes(&mut state, to, bytes)?;
        let from = any_bytes(&mut state, from.expose_provenance() as u64, bytes)?;
        // SAFETY: `to` is inside a live block; the caller of the driver vouches for `from`.
        unsafe { copy(to, from, bytes) };
    }
    Ok(())
}

pub(crate) unsafe fn device_to_host(
    instance: &Instance,
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
) -> Answer {
    let mut state = instance.state();
    current(instance, &state)?;
    if bytes > 0 {
        let from = device_bytes(&mut state, from, bytes)?;
        let to = any_bytes(&mut state, to.expose_provenance() as u64, bytes)?;
        // SAFETY: `from` is inside a live block; the caller of the driver vouches for `to`.
        unsafe { copy(to, from, bytes) };
    }
    Ok(())
}

pub(crate) unsafe fn device_to_device(
    instance: &Instance,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
) -> Answer {
    let mut state = instance.state();
    current(instance, &state)?;
    if bytes > 0 {
        let from = device_bytes(&mut state, from, bytes)?;
        let to = device_bytes(&mut state, to, bytes)?;
        // SAFETY: both are inside live blocks.
        unsafe { copy(to, from, bytes) };
    }
    Ok(())
}

pub(crate) unsafe fn any_to_any(
    instance: &Instance,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
) -> Answer {
    let mut state = instance.state();
    current(instance, &state)?;
    if bytes > 0 {
        let from = any_bytes(&mut state, from, bytes)?;
        let to = any_bytes(&mut state, to, bytes)?;
        // SAFETY: each is inside a live block, or the caller of the driver vouches for it.
        unsafe { copy(to, from, bytes) };
    }
    Ok(())
}

/// Fills `count` values.
fn fill<T: Copy>(instance: &Instance, to: CUdeviceptr, value: T, count: usize) -> Answer {
    let mut state = instance.state();
    current(instance, &state)?;
    let size = size_of::<T>();
    let refusal = CUresult::CUDA_ERROR_INVALID_VALUE;
    let bytes = count.checked_mul(size).ok_or(refusal)?;
    if !to.is_multiple_of(size as u64) {
        return Err(refusal);
    }
    if bytes > 0 {
        let place = device_bytes(&mut state, to, bytes)?.cast::<T>();
        for index in 0..count {
            // SAFETY: `count` values lie inside a live block, at an aligned address.
            unsafe { place.add(index).write(value) };
        }
    }
    Ok(())
}

pub(crate) unsafe fn set_8(
    instance: &Instance,
    to: CUdeviceptr,
    value: u8,
    count: usize,
) -> Answer {
    fill(instance, to, value, count)
}

pub(crate) unsafe fn set_16(
    instance: &Instance,
    to: CUdeviceptr,
    value: u16,
    count: usize,
) -> Answer {
    fill(instance, to, value, count)
}

pub(crate) unsafe fn set_32(
    instance: &Instance,
    to: CUdeviceptr,
    value: u32,
    count: usize,
) -> Answer {
    fill(instance, to, value, count)
}
