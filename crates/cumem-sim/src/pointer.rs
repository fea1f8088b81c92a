//! What the driver knows about a pointer.

use std::ffi::c_void;

use cumem_sys::{CUcontext, CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult};

use crate::books::MemoryType;
use crate::instance::{Answer, Instance};
use crate::memory::block_at;

pub(crate) unsafe fn get_attribute(
    instance: &Instance,
    data: *mut c_void,
    attribute: CUpointer_attribute,
    pointer: CUdeviceptr,
) -> Answer {
    let state = instance.state();
    let (start, block) = block_at(&state, pointer).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller of the driver passes a place for what the attribute is.
    unsafe {
        match attribute {
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT => {
                data.cast::<CUcontext>().write(block.context)
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                data.cast::<CUmemorytype>().write(match block.memory {
                    MemoryType::Pinned => CUmemorytype::CU_MEMORYTYPE_HOST,
                    MemoryType::Managed | MemoryType::Device => CUmemorytype::CU_MEMORYTYPE_DEVICE,
                });
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => {
                data.cast::<u64>().write(pointer)
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                if block.memory == MemoryType::Device {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                data.cast::<u64>().write(pointer);
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => {
                data.cast::<u64>().write(block.buffer_id);
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                data.cast::<bool>()
                    .write(block.memory == MemoryType::Managed);
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                data.cast::<i32>().write(block.device);
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
                data.cast::<u64>().write(start)
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => {
                data.cast::<usize>().write(block.size)
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(())
}
