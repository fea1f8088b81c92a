//! Memory: what is allocated, where its bytes are, and how it is given back.

mod attributes;
pub(crate) mod copy;
mod device;
mod managed;
mod pinned;
pub(crate) mod region;
mod stream_ordered;
pub(crate) mod virtual_memory;

use core::ffi::c_int;
use std::collections::BTreeSet;
use std::sync::Arc;

use cumem_sys::{CUdeviceptr, CUmemAttach_flags, CUresult};

use self::managed::Advice;
use self::region::{Block, CHUNK, Class, Region, STEP};
use self::virtual_memory::Physical;
use crate::books::Kind;
use crate::instance::{Answer, Instance, State};
use crate::table::Call;

/// One allocation, by its address in [`State::allocations`].
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) kind: Kind,
    /// What was asked for.
    pub(crate) bytes: usize,
    pub(crate) store: Store,
    pub(crate) device: c_int,
    /// The context that it goes with; 0 if none.
    pub(crate) context: usize,
    /// The number that no other allocation has.
    pub(crate) id: u64,
    /// The flags that it was made with.
    pub(crate) flags: u32,
    pub(crate) sync_memops: bool,
    /// The pool that it came from; 0 if none.
    pub(crate) pool: usize,
    pub(crate) advice: Advice,
    /// The devices that may use it, for mapped physical memory.
    pub(crate) readers: BTreeSet<c_int>,
    pub(crate) writers: BTreeSet<c_int>,
}

/// Which arena of a context an allocation comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ArenaKey {
    kind: Kind,
    /// Managed memory that was made for the host.
    for_host: bool,
}

impl ArenaKey {
    pub(crate) fn kind(self) -> Kind {
        self.kind
    }

    fn of(kind: Kind, flags: u32) -> Self {
        let host = CUmemAttach_flags::CU_MEM_ATTACH_HOST.0;
        Self {
            kind,
            for_host: kind == Kind::Managed && flags == host,
        }
    }
}

/// Where the bytes of an allocation are. A clone keeps them there.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Block(Block),
    /// The program's own memory.
    Host(u64),
    Physical {
        memory: Arc<Physical>,
        offset: usize,
    },
}

impl Store {
    /// Where the byte at an offset is.
    pub(crate) fn place(&self, offset: usize) -> *mut u8 {
        match self {
            Self::Block(block) => block.place(offset),
            Self::Host(pointer) => {
                core::ptr::with_exposed_provenance_mut(*pointer as usize + offset)
            }
            Self::Physical { memory, offset: at } => memory.place(at + offset),
        }
    }
}

impl Allocation {
    pub(crate) fn new(kind: Kind, bytes: usize, store: Store, device: c_int) -> Self {
        Self {
            kind,
            bytes,
            store,
            device,
            context: 0,
            id: fresh_id(),
            flags: 0,
            sync_memops: false,
            pool: 0,
            advice: Advice::default(),
            readers: BTreeSet::new(),
            writers: BTreeSet::new(),
        }
    }

    /// Whether the host can touch it at its address.
    pub(crate) fn is_host_accessible(&self) -> bool {
        matches!(self.kind, Kind::Managed | Kind::Pinned | Kind::Registered)
    }

    /// Whether it lies in page-locked host memory.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }
}

fn fresh_id() -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only a number that nobody else gets.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The bytes that are taken from the host, as against the devices.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) pinned: usize,
    pub(crate) managed: usize,
}

impl State {
    /// The allocation that holds an address, and where it begins.
    pub(crate) fn find(&self, pointer: CUdeviceptr) -> Option<(u64, &Allocation)> {
        let (&base, allocation) = self.allocations.range(..=pointer).next_back()?;
        (pointer - base < allocation.bytes.max(1) as u64).then_some((base, allocation))
    }

    pub(crate) fn insert(&mut self, pointer: u64, allocation: Allocation) {
        self.history.freed.remove(&pointer);
        let former = self.allocations.insert(pointer, allocation);
        debug_assert!(former.is_none(), "an address was handed out twice");
    }

    /// Takes an allocation out of the books; its memory is still there.
    pub(crate) fn remove(&mut self, pointer: u64) -> Option<Allocation> {
        let allocation = self.allocations.remove(&pointer)?;
        self.history.freed.insert(pointer, allocation.kind);
        Some(allocation)
    }

    /// Gives the memory of an allocation back.
    pub(crate) fn give_back(&mut self, allocation: &Allocation) {
        let block = match &allocation.store {
            Store::Block(block) => block,
            Store::Host(_) => {
                self.usage.pinned -= allocation.bytes;
                return;
            }
            Store::Physical { .. } => return,
        };
        if allocation.pool != 0 {
            self.give_block_to_pool(allocation.pool, block, allocation.bytes);
            return;
        }
        let Some(context) = self.contexts.get_mut(&allocation.context) else {
            return;
        };
        let key = ArenaKey::of(allocation.kind, allocation.flags);
        let Some(arena) = context.arenas.get_mut(&key) else {
            return;
        };
        arena.give(block);
        let released = arena.release_unused(0);
        self.retire(allocation.kind, allocation.device, released);
    }

    /// Takes regions back that a kind had.
    pub(crate) fn retire(&mut self, kind: Kind, device: c_int, regions: Vec<Arc<Region>>) {
        for region in regions {
            self.uncharge(kind, device, region.bytes());
            self.spare.put(region);
        }
    }

    /// Gives bytes back to what a kind takes from.
    pub(crate) fn uncharge(&mut self, kind: Kind, device: c_int, bytes: usize) {
        if let Some(taken) = self.counter(kind, device) {
            *taken -= bytes;
        }
    }

    /// Takes managed memory from the host while the device is at work, where the two can't touch it
    /// at the same time; else gives it back.
    pub(crate) fn guard_managed(&mut self) {
        if !self.guards_managed {
            return;
        }
        let shut = !self.ends_of(|_| true).is_empty();
        if shut == self.managed_shut {
            return;
        }
        self.managed_shut = shut;
        let key = ArenaKey::of(Kind::Managed, 0);
        for context in self.contexts.values() {
            if let Some(arena) = context.arenas.get(&key) {
                arena.shut(shut);
            }
        }
    }

    /// What counts the bytes that a kind takes.
    fn counter(&mut self, kind: Kind, device: c_int) -> Option<&mut usize> {
        match kind {
            Kind::Pinned => Some(&mut self.usage.pinned),
            Kind::Managed => Some(&mut self.usage.managed),
            _ => self.device(device).ok().map(|device| &mut device.used),
        }
    }
}

impl Instance {
    /// Takes bytes from what a kind has, or says that there are not enough.
    pub(crate) fn charge(
        &self,
        state: &mut State,
        kind: Kind,
        device: c_int,
        bytes: usize,
    ) -> Answer {
        let limit = match kind {
            Kind::Pinned => self.config().host_memory,
            Kind::Managed => self.config().managed_memory,
            _ => self.config().memory_per_device,
        };
        let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let taken = state.counter(kind, device).ok_or(full)?;
        if bytes > limit.saturating_sub(*taken) {
            return Err(full);
        }
        *taken += bytes;
        Ok(())
    }

    /// Makes an allocation of a kind in a context.
    fn allocate(
        &self,
        state: &mut State,
        kind: Kind,
        flags: u32,
        context: usize,
        bytes: usize,
    ) -> Answer<u64> {
        let key = ArenaKey::of(kind, flags);
        let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let device = state.context(context)?.device;
        let rounded = bytes
            .checked_next_multiple_of(if bytes > CHUNK { CHUNK } else { STEP })
            .ok_or(full)?;
        let arena = |state: &mut State| {
            let context = state.contexts.get_mut(&context);
            context.and_then(|it| it.arenas.entry(key).or_default().take(rounded))
        };
        let block = match arena(state) {
            Some(block) => block,
            None => {
                let whole = rounded.next_multiple_of(CHUNK);
                self.charge(state, kind, device, whole)?;
                let class = match kind {
                    Kind::Device => Class::Closed,
                    Kind::Managed if state.guards_managed && !key.for_host => Class::Guarded,
                    _ => Class::Open,
                };
                let region = state.spare.take(class, whole);
                if let (Class::Guarded, Some(region)) = (class, &region) {
                    region.shut(state.managed_shut);
                }
                let Some(region) = region else {
                    state.uncharge(kind, device, whole);
                    return Err(full);
                };
                if let Some(context) = state.contexts.get_mut(&context) {
                    context.arenas.entry(key).or_default().add(region);
                }
                arena(state).ok_or(full)?
            }
        };
        let pointer = block.address();
        let mut allocation = Allocation::new(kind, bytes, Store::Block(block), device);
        allocation.context = context;
        allocation.flags = flags;
        state.insert(pointer, allocation);
        Ok(pointer)
    }

    /// Frees the allocation at an address, once the work of its context is done, if it is of a kind
    /// that the call frees. No context need be current, but not one that was destroyed.
    fn free(&self, pointer: u64, call: Call, frees: fn(Kind) -> bool) -> Answer {
        let mut state = self.state();
        if let Some(current) = self.top_of_stack() {
            state.context(current)?;
        }
        if pointer == 0 {
            return Ok(());
        }
        let kind = state.allocations.get(&pointer).map(|one| one.kind);
        if !kind.is_some_and(frees) {
            let inside = state.find(pointer).map(|(_, one)| one.kind);
            let live = kind.or(inside.filter(|_| !state.history.freed.contains_key(&pointer)));
            state.history.refused(pointer, call, live);
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let Some(allocation) = state.remove(pointer) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        // Stream-ordered memory is of no context: its program has to wait.
        let ends = state.ends_of_context(allocation.context);
        let mut state = self.wait_for(state, &ends);
        state.give_back(&allocation);
        Ok(())
    }
}
