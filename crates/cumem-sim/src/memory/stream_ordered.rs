//! Memory that is allocated and freed in the order of a stream.

use cumem_sys::{CUdeviceptr, CUmemoryPool, CUresult, CUstream};

use super::{Allocation, Store};
use crate::books::Kind;
use crate::instance::{Answer, Instance, State, put};
use crate::stream::Work;
use crate::table::Call;

impl Instance {
    fn allocate_from(
        &self,
        state: &mut State,
        pointer: *mut CUdeviceptr,
        bytes: usize,
        pool: usize,
        stream: usize,
    ) -> Answer {
        if pointer.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if bytes == 0 {
            // SAFETY: it isn't null, and the caller gave a place for one.
            return unsafe { put(pointer, 0) };
        }
        let (block, device) = self.take_from_pool(state, pool, stream, bytes)?;
        let address = block.address();
        let store = Store::Block(block);
        let mut allocation = Allocation::new(Kind::StreamOrdered, bytes, store, device);
        allocation.pool = pool;
        state.insert(address, allocation);
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(pointer, address) }
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemAllocAsync(
        &self,
        pointer: *mut CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        let mut state = self.state();
        let stream = self.find_stream(&mut state, stream)?;
        let context = state
            .streams
            .get(&stream)
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?
            .context();
        let device = state.context(context)?.device;
        let pool = state.device(device)?.pool;
        self.allocate_from(&mut state, pointer, bytes, pool, stream)
    }

    pub(crate) unsafe fn cuMemAllocFromPoolAsync(
        &self,
        pointer: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> Answer {
        let mut state = self.state();
        let stream = self.find_stream(&mut state, stream)?;
        state.pool(pool)?;
        self.allocate_from(&mut state, pointer, bytes, pool.addr(), stream)
    }

    pub(crate) unsafe fn cuMemFreeAsync(&self, pointer: CUdeviceptr, stream: CUstream) -> Answer {
        let mut state = self.state();
        let stream = self.find_stream(&mut state, stream)?;
        let kind = state.allocations.get(&pointer).map(|one| one.kind);
        if pointer == 0 {
            return Ok(());
        }
        if kind == Some(Kind::Managed) {
            state.history.refused(pointer, Call::cuMemFreeAsync, kind);
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        if !matches!(kind, Some(Kind::StreamOrdered | Kind::Device)) {
            state.history.refused(pointer, Call::cuMemFreeAsync, kind);
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let Some(allocation) = state.remove(pointer) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let work = match &allocation.store {
            Store::Block(block) if allocation.pool != 0 => {
                let (block, bytes) = (block.clone(), allocation.bytes);
                let pool = allocation.pool;
                let block = state.free_in_stream(pool, stream, block, bytes);
                Work::GiveToPool { pool, block }
            }
            _ => Work::Free(Box::new(allocation)),
        };
        self.enqueue(&mut state, stream, work)?;
        Ok(())
    }
}
