//! Allocating, freeing, advising.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cumem_sys::{
    CUcontext, CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemLocation,
    CUmemLocationType, CUresult, CUstream,
};

use crate::books::MemoryType;
use crate::context::current;
use crate::device::check_device;
use crate::instance::{Answer, Instance, State};

/// The ordinal that stands for the host, and the one that stands for no device.
const HOST: c_int = -1;
const NOWHERE: c_int = -2;

/// One live block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) size: usize,
    pub(crate) memory: MemoryType,
    pub(crate) context: CUcontext,
    pub(crate) device: i32,
    pub(crate) buffer_id: u64,
    pub(crate) host_flags: c_uint,
    read_mostly: bool,
    preferred: c_int,
    accessed_by: BTreeSet<c_int>,
    prefetched: c_int,
}

/// Allocates a block in the current context.
fn allocate(
    instance: &Instance,
    memory: MemoryType,
    size: usize,
    host_flags: c_uint,
) -> Result<u64, CUresult> {
    let mut state = instance.state();
    let (context, device) = current(instance, &state)?;
    if size == 0 {
        // The real driver gives null for pinned memory, and refuses the others.
        return match memory {
            MemoryType::Pinned => Ok(0),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
    }
    let used = used_beside(&state, memory, device);
    if size > instance.config.memory_per_device.saturating_sub(used) {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let pointer = state
        .space(memory)
        .allocate(size)
        .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as u64;
    let buffer_id = state.next_buffer_id;
    state.next_buffer_id += 1;
    state.freed.remove(&pointer);
    state.blocks.insert(
        pointer,
        Block {
            size,
            memory,
            context,
            device,
            buffer_id,
            host_flags,
            read_mostly: false,
            preferred: NOWHERE,
            accessed_by: BTreeSet::new(),
            prefetched: NOWHERE,
        },
    );
    Ok(pointer)
}

/// Bytes that are taken of what an allocation of this kind would take from: the device's memory,
/// or the host's that can be pinned.
fn used_beside(state: &State, memory: MemoryType, device: i32) -> usize {
    let pinned = memory == MemoryType::Pinned;
    state
        .blocks
        .values()
        .filter(|block| (block.memory == MemoryType::Pinned) == pinned)
        .filter(|block| pinned || block.device == device)
        .map(|block| block.size)
        .sum()
}

/// Frees a block through an entry point that takes these kinds.
fn free(instance: &Instance, pointer: u64, takes: &[MemoryType]) -> Answer {
    if pointer == 0 {
        return Ok(());
    }
    let mut state = instance.state();
    match state.blocks.get(&pointer) {
        Some(block) if takes.contains(&block.memory) => {
            end(&mut state, pointer);
            Ok(())
        }
        Some(_) => {
            state.wrong_entry_frees += 1;
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        None if state.freed.contains(&pointer) => {
            state.double_frees += 1;
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        None => {
            state.unknown_frees += 1;
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    }
}

/// Takes a block off the books and gives its addresses back.
pub(crate) fn end(state: &mut State, pointer: u64) {
    if let Some(block) = state.blocks.remove(&pointer) {
        state
            .space(block.memory)
            .release(pointer as usize, block.size);
        state.freed.insert(pointer);
    }
}

/// The block that an address lies in, with its start.
pub(crate) fn block_at(state: &State, pointer: u64) -> Option<(u64, &Block)> {
    let (&start, block) = state.blocks.range(..=pointer).next_back()?;
    (pointer - start < block.size as u64).then_some((start, block))
}

pub(crate) unsafe fn alloc(instance: &Instance, pointer: *mut CUdeviceptr, bytes: usize) -> Answer {
    let address = allocate(instance, MemoryType::Device, bytes, 0)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { pointer.write(address) };
    Ok(())
}

pub(crate) unsafe fn alloc_managed(
    instance: &Instance,
    pointer: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> Answer {
    // Global, host and single, of which exactly one is chosen.
    if !matches!(flags, 1 | 2 | 4) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let address = allocate(instance, MemoryType::Managed, bytes, 0)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { pointer.write(address) };
    Ok(())
}

pub(crate) unsafe fn host_alloc(
    instance: &Instance,
    pointer: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> Answer {
    // Portable, device-mapped, write-combined.
    if flags & !7 != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let address = allocate(instance, MemoryType::Pinned, bytes, flags)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { pointer.write(ptr::with_exposed_provenance_mut(address as usize)) };
    Ok(())
}

pub(crate) unsafe fn free_device(instance: &Instance, pointer: CUdeviceptr) -> Answer {
    free(
        instance,
        pointer,
        &[MemoryType::Managed, MemoryType::Device],
    )
}

pub(crate) unsafe fn free_host(instance: &Instance, pointer: *mut c_void) -> Answer {
    free(instance, pointer.addr() as u64, &[MemoryType::Pinned])
}

pub(crate) unsafe fn get_info(instance: &Instance, free: *mut usize, total: *mut usize) -> Answer {
    let state = instance.state();
    let (_, device) = current(instance, &state)?;
    let all = instance.config.memory_per_device;
    // SAFETY: the caller of the driver passes places for the results.
    unsafe {
        free.write(all.saturating_sub(used_beside(&state, MemoryType::Device, device)));
        total.write(all);
    }
    Ok(())
}

pub(crate) unsafe fn get_address_range(
    instance: &Instance,
    base: *mut CUdeviceptr,
    bytes: *mut usize,
    pointer: CUdeviceptr,
) -> Answer {
    let state = instance.state();
    let (start, block) = block_at(&state, pointer).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    // SAFETY: the caller of the driver passes places for the results, or null.
    unsafe {
        if !base.is_null() {
            base.write(start);
        }
        if !bytes.is_null() {
            bytes.write(block.size);
        }
    }
    Ok(())
}

/// The pinned block that a host address lies in.
fn pinned_block(state: &State, pointer: *mut c_void) -> Result<(u64, &Block), CUresult> {
    block_at(state, pointer.addr() as u64)
        .filter(|(_, block)| block.memory == MemoryType::Pinned)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn host_get_device_pointer(
    instance: &Instance,
    device_pointer: *mut CUdeviceptr,
    pointer: *mut c_void,
    _flags: c_uint,
) -> Answer {
    pinned_block(&instance.state(), pointer)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { device_pointer.write(pointer.addr() as u64) };
    Ok(())
}

pub(crate) unsafe fn host_get_flags(
    instance: &Instance,
    flags: *mut c_uint,
    pointer: *mut c_void,
) -> Answer {
    let state = instance.state();
    let (_, block) = pinned_block(&state, pointer)?;
    // SAFETY: the caller of the driver passes a place for the result.
    unsafe { flags.write(block.host_flags) };
    Ok(())
}

/// The managed block that a whole range lies in.
fn managed_block(state: &mut State, pointer: u64, bytes: usize) -> Result<&mut Block, CUresult> {
    let refusal = CUresult::CUDA_ERROR_INVALID_VALUE;
    if bytes == 0 {
        return Err(refusal);
    }
    let (start, block) = block_at(state, pointer).ok_or(refusal)?;
    let fits = bytes as u64 <= block.size as u64 - (pointer - start);
    if block.memory != MemoryType::Managed || !fits {
        return Err(refusal);
    }
    state.blocks.get_mut(&start).ok_or(refusal)
}

/// A location as an ordinal, which is how both forms of a call are remembered.
fn ordinal_of(instance: &Instance, location: CUmemLocation) -> Result<c_int, CUresult> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            check_device(instance, location.ordinal())?;
            Ok(location.ordinal())
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Ok(HOST),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn require_concurrent_access(instance: &Instance) -> Answer {
    if instance.config.concurrent_managed_access {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }
}

pub(crate) unsafe fn advise(
    instance: &Instance,
    pointer: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Answer {
    require_concurrent_access(instance)?;
    if device != HOST {
        check_device(instance, device)?;
    }
    let mut state = instance.state();
    let block = managed_block(&mut state, pointer, bytes)?;
    match advice {
        CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY => block.read_mostly = true,
        CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY => block.read_mostly = false,
        CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => block.preferred = device,
        CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => block.preferred = NOWHERE,
        CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            block.accessed_by.insert(device);
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            block.accessed_by.remove(&device);
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn advise_location(
    instance: &Instance,
    pointer: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Answer {
    let device = ordinal_of(instance, location)?;
    // SAFETY: the same promise.
    unsafe { advise(instance, pointer, bytes, advice, device) }
}

pub(crate) unsafe fn prefetch(
    instance: &Instance,
    pointer: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Answer {
    require_concurrent_access(instance)?;
    if !stream.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    if device != HOST {
        check_device(instance, device)?;
    }
    let mut state = instance.state();
    managed_block(&mut state, pointer, bytes)?.prefetched = device;
    Ok(())
}

pub(crate) unsafe fn prefetch_location(
    instance: &Instance,
    pointer: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    _flags: c_uint,
    stream: CUstream,
) -> Answer {
    let device = ordinal_of(instance, location)?;
    // SAFETY: the same promise.
    unsafe { prefetch(instance, pointer, bytes, device, stream) }
}

pub(crate) unsafe fn range_get_attribute(
    instance: &Instance,
    data: *mut c_void,
    size: usize,
    attribute: CUmem_range_attribute,
    pointer: CUdeviceptr,
    bytes: usize,
) -> Answer {
    let mut state = instance.state();
    let block = managed_block(&mut state, pointer, bytes)?;
    let mut answer: Vec<c_int> = match attribute {
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
            vec![c_int::from(block.read_mostly)]
        }
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => vec![block.preferred],
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => {
            vec![block.prefetched]
        }
        CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            let mut devices: Vec<c_int> = block.accessed_by.iter().copied().collect();
            devices.resize(size / size_of::<c_int>(), NOWHERE);
            devices
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    if size == 0 || size != size_of_val(answer.as_slice()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller of the driver passes a place for `size` bytes, which the answer has.
    unsafe {
        data.cast::<c_int>()
            .copy_from_nonoverlapping(answer.as_mut_ptr(), answer.len());
    }
    Ok(())
}
