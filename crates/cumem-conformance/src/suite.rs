//! The behaviours, by area.

mod advice;
mod context;
mod copy;
mod device;
mod device_memory;
mod event;
mod kernel;
mod legacy;
mod lifetime;
mod managed;
mod pinned;
mod pointer;
mod pool;
mod primary;
mod registered;
mod stream;
mod stream_ordered;
mod virtual_memory;

use crate::behaviour::Behaviour;

/// Every behaviour, in the order in which they are checked and shown.
#[must_use]
pub fn behaviours() -> Vec<Behaviour> {
    [
        device::ALL,
        legacy::ALL,
        context::ALL,
        primary::ALL,
        managed::ALL,
        device_memory::ALL,
        pinned::ALL,
        registered::ALL,
        copy::ALL,
        pointer::ALL,
        advice::ALL,
        stream::ALL,
        event::ALL,
        stream_ordered::ALL,
        pool::ALL,
        virtual_memory::ALL,
        kernel::ALL,
        lifetime::ALL,
    ]
    .concat()
}

/// Codes, shortly.
mod code {
    use cumem_sys::CUresult;

    pub(super) const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    pub(super) const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    pub(super) const INVALID_CONTEXT: CUresult = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    pub(super) const INVALID_DEVICE: CUresult = CUresult::CUDA_ERROR_INVALID_DEVICE;
    pub(super) const INVALID_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
    pub(super) const CONTEXT_IS_DESTROYED: CUresult = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// More than any machine has.
const TOO_MUCH: usize = 1 << 50;
