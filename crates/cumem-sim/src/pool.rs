//! Pools of stream-ordered memory.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::collections::{BTreeSet, HashMap};

use cumem_sys::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult,
};

use crate::books::Kind;
use crate::instance::{Answer, Instance, State, fresh_handle, put, put_as};
use crate::memory::region::{Arena, Block, Class, STEP};

/// What a pool takes from the device at a time.
pub(crate) const GROWTH: usize = 32 << 20;

#[derive(Debug)]
pub(crate) struct Pool {
    device: c_int,
    is_default: bool,
    /// Destroyed; it goes when nothing of it is in use.
    retired: bool,
    arena: Arena,
    /// Blocks that were freed in a stream that has not come to it yet, by number.
    freed: HashMap<u64, FreedBlock>,
    threshold: u64,
    limit: usize,
    reserved_high: usize,
    used: usize,
    used_high: usize,
    /// Devices other than its own that may use it.
    peers: BTreeSet<c_int>,
    /// Whether blocks are used again by way of events, opportunistically, and by way of new
    /// dependencies, as the program set it.
    reuse: [c_int; 3],
}

#[derive(Debug)]
struct FreedBlock {
    stream: usize,
    block: Block,
}

impl Pool {
    pub(crate) fn new(device: c_int, is_default: bool) -> Self {
        Self {
            device,
            is_default,
            retired: false,
            arena: Arena::default(),
            freed: HashMap::new(),
            threshold: 0,
            limit: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            peers: BTreeSet::new(),
            reuse: [1; 3],
        }
    }

    fn is_unused(&self) -> bool {
        self.used == 0 && self.freed.is_empty()
    }

    /// Counts what was asked for, which a block may be more than.
    fn count(&mut self, bytes: usize) {
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
    }
}

impl State {
    /// A pool that wasn't destroyed.
    pub(crate) fn pool(&mut self, pool: CUmemoryPool) -> Answer<&mut Pool> {
        self.pools
            .get_mut(&pool.addr())
            .filter(|pool| !pool.retired)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Takes a block back at once.
    pub(crate) fn give_block_to_pool(&mut self, handle: usize, block: &Block, bytes: usize) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used -= bytes;
            pool.arena.give(block);
            self.remove_if_gone(handle);
        }
    }

    /// Takes a block back that a stream has come to, unless it is in use again.
    pub(crate) fn give_to_pool(&mut self, handle: usize, number: u64) {
        if let Some(pool) = self.pools.get_mut(&handle)
            && let Some(freed) = pool.freed.remove(&number)
        {
            pool.arena.give(&freed.block);
            self.remove_if_gone(handle);
        }
    }

    /// Notes that a block is free from a point in a stream on; returns its number.
    pub(crate) fn free_in_stream(
        &mut self,
        handle: usize,
        stream: usize,
        block: Block,
        bytes: usize,
    ) -> u64 {
        let number = fresh_handle() as u64;
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used -= bytes;
            pool.freed.insert(number, FreedBlock { stream, block });
        }
        number
    }

    fn remove_if_gone(&mut self, handle: usize) {
        let Some(pool) = self.pools.get_mut(&handle) else {
            return;
        };
        if pool.retired && pool.is_unused() {
            let device = pool.device;
            if let Some(pool) = self.pools.remove(&handle) {
                self.retire(Kind::StreamOrdered, device, pool.arena.into_regions());
            }
        }
    }

    fn trim(&mut self, handle: usize, keep: usize) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            let (device, released) = (pool.device, pool.arena.release_unused(keep));
            self.retire(Kind::StreamOrdered, device, released);
        }
    }

    /// Gives the system what the pools of a device hold above their thresholds.
    pub(crate) fn trim_to_thresholds(&mut self, device: c_int) {
        let pools: Vec<(usize, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.device == device)
            .map(|(&handle, pool)| (handle, pool.threshold))
            .collect();
        for (handle, threshold) in pools {
            self.trim(handle, usize::try_from(threshold).unwrap_or(usize::MAX));
        }
    }
}

impl Instance {
    /// Takes a block from a pool for use in a stream. Returns the pool's device as well.
    pub(crate) fn take_from_pool(
        &self,
        state: &mut State,
        handle: usize,
        stream: usize,
        bytes: usize,
    ) -> Answer<(Block, c_int)> {
        let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let asked = bytes;
        let bytes = bytes.checked_next_multiple_of(STEP).ok_or(full)?;
        let pool = state
            .pools
            .get_mut(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let device = pool.device;
        // What was freed earlier in the same stream is free for it already.
        let again = pool
            .freed
            .iter()
            .filter(|(_, freed)| freed.stream == stream && freed.block.bytes >= bytes)
            .min_by_key(|(number, freed)| (freed.block.bytes, **number))
            .map(|(&number, _)| number);
        if let Some(freed) = again.and_then(|number| pool.freed.remove(&number)) {
            pool.count(asked);
            return Ok((freed.block, device));
        }
        if let Some(block) = pool.arena.take(bytes) {
            pool.count(asked);
            return Ok((block, device));
        }
        let whole = bytes.checked_next_multiple_of(GROWTH).ok_or(full)?;
        if pool.limit > 0 && pool.arena.held().saturating_add(whole) > pool.limit {
            return Err(full);
        }
        if self
            .charge(state, Kind::StreamOrdered, device, whole)
            .is_err()
        {
            // What other pools hold unused goes first.
            let pools: Vec<usize> = state
                .pools
                .iter()
                .filter(|(_, pool)| pool.device == device)
                .map(|(&handle, _)| handle)
                .collect();
            for pool in pools {
                state.trim(pool, 0);
            }
            self.charge(state, Kind::StreamOrdered, device, whole)?;
        }
        let Some(region) = state.spare.take(Class::Low, whole) else {
            state.uncharge(Kind::StreamOrdered, device, whole);
            return Err(full);
        };
        let pool = state.pools.get_mut(&handle).ok_or(full)?;
        pool.arena.add(region);
        pool.reserved_high = pool.reserved_high.max(pool.arena.held());
        let block = pool.arena.take(bytes).ok_or(full)?;
        pool.count(asked);
        Ok((block, device))
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemPoolCreate(
        &self,
        pool: *mut CUmemoryPool,
        properties: *const CUmemPoolProps,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if pool.is_null() || properties.is_null() {
            return Err(invalid);
        }
        // SAFETY: it isn't null, and the caller gave one.
        let properties = unsafe { properties.read_unaligned() };
        let pinned = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        let handles = [
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        ];
        if properties.allocType != pinned || !handles.contains(&properties.handleTypes) {
            return Err(invalid);
        }
        if properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            // Pools of host memory aren't simulated.
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = properties.location.ordinal();
        self.is_device(device).map_err(|_| invalid)?;
        let handle = fresh_handle();
        let mut made = Pool::new(device, false);
        made.limit = properties.maxSize;
        self.state().pools.insert(handle, made);
        // SAFETY: it isn't null, and the caller gave a place for a handle.
        unsafe { put(pool, ptr::without_provenance_mut(handle)) }
    }

    pub(crate) unsafe fn cuMemPoolDestroy(&self, pool: CUmemoryPool) -> Answer {
        let mut state = self.state();
        let one = state.pool(pool)?;
        if one.is_default {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        one.retired = true;
        let device = one.device;
        let device = state.device(device)?;
        if device.pool == pool.addr() {
            device.pool = device.default_pool;
        }
        state.remove_if_gone(pool.addr());
        Ok(())
    }

    pub(crate) unsafe fn cuMemPoolTrimTo(&self, pool: CUmemoryPool, keep: usize) -> Answer {
        let mut state = self.state();
        state.pool(pool)?;
        state.trim(pool.addr(), keep);
        Ok(())
    }

    pub(crate) unsafe fn cuMemPoolSetAttribute(
        &self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    ) -> Answer {
        use CUmemPool_attribute as M;
        let mut state = self.state();
        let one = state.pool(pool)?;
        if value.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: it isn't null, and the caller gave a value of the attribute's type.
        unsafe {
            match attribute {
                M::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => {
                    one.reuse[0] = value.cast::<c_int>().read_unaligned();
                }
                M::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => {
                    one.reuse[1] = value.cast::<c_int>().read_unaligned();
                }
                M::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                    one.reuse[2] = value.cast::<c_int>().read_unaligned();
                }
                M::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                    one.threshold = value.cast::<u64>().read_unaligned();
                }
                // A high watermark can only be set to 0, which means to now.
                M::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
                    if value.cast::<u64>().read_unaligned() == 0 =>
                {
                    one.reserved_high = one.arena.held();
                }
                M::CU_MEMPOOL_ATTR_USED_MEM_HIGH if value.cast::<u64>().read_unaligned() == 0 => {
                    one.used_high = one.used;
                }
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuMemPoolGetAttribute(
        &self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    ) -> Answer {
        use CUmemPool_attribute as M;
        let mut state = self.state();
        let one = state.pool(pool)?;
        // SAFETY: the caller gave a place for a value of the attribute's type, or null.
        unsafe {
            match attribute {
                M::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => put_as(value, one.reuse[0]),
                M::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => put_as(value, one.reuse[1]),
                M::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => put_as(value, one.reuse[2]),
                M::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => put_as(value, one.threshold),
                M::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => put_as(value, one.arena.held() as u64),
                M::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => put_as(value, one.reserved_high as u64),
                M::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => put_as(value, one.used as u64),
                M::CU_MEMPOOL_ATTR_USED_MEM_HIGH => put_as(value, one.used_high as u64),
                _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
    }

    pub(crate) unsafe fn cuMemPoolSetAccess(
        &self,
        pool: CUmemoryPool,
        access: *const CUmemAccessDesc,
        count: usize,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let mut state = self.state();
        let own = state.pool(pool)?.device;
        if access.is_null() || count == 0 {
            return Err(invalid);
        }
        for at in 0..count {
            // SAFETY: it isn't null, and the caller gave `count` of them.
            let one = unsafe { access.add(at).read_unaligned() };
            let device = one.location.ordinal();
            if one.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
                return Err(invalid);
            }
            self.is_device(device)?;
            let none = one.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
            if device == own {
                if none {
                    return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
                }
            } else if none {
                state.pool(pool)?.peers.remove(&device);
            } else {
                state.pool(pool)?.peers.insert(device);
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuMemPoolGetAccess(
        &self,
        flags: *mut CUmemAccess_flags,
        pool: CUmemoryPool,
        location: *mut CUmemLocation,
    ) -> Answer {
        let mut state = self.state();
        let one = state.pool(pool)?;
        if location.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: it isn't null, and the caller gave one.
        let device = unsafe { location.read_unaligned() }.ordinal();
        self.is_device(device)?;
        let answer = if device == one.device || one.peers.contains(&device) {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
        };
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(flags, answer) }
    }

    pub(crate) unsafe fn cuDeviceGetDefaultMemPool(
        &self,
        pool: *mut CUmemoryPool,
        device: CUdevice,
    ) -> Answer {
        let handle = self.state().device(device)?.default_pool;
        // SAFETY: the caller gave a place for a handle, or null.
        unsafe { put(pool, ptr::without_provenance_mut(handle)) }
    }

    pub(crate) unsafe fn cuDeviceGetMemPool(
        &self,
        pool: *mut CUmemoryPool,
        device: CUdevice,
    ) -> Answer {
        let handle = self.state().device(device)?.pool;
        // SAFETY: the caller gave a place for a handle, or null.
        unsafe { put(pool, ptr::without_provenance_mut(handle)) }
    }

    pub(crate) unsafe fn cuDeviceSetMemPool(&self, device: CUdevice, pool: CUmemoryPool) -> Answer {
        let mut state = self.state();
        state.device(device)?;
        if state.pool(pool)?.device != device {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        state.device(device)?.pool = pool.addr();
        Ok(())
    }
}
