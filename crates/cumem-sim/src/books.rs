//! The driver's own account of what happened.

use std::collections::BTreeMap;

use cumem_sys::{CUcontext, CUdeviceptr};

/// Which call a block of memory came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemoryType {
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAlloc_v2`.
    Device,
    /// `cuMemHostAlloc`.
    Pinned,
}

/// A block that was allocated and not freed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LiveBlock {
    /// Its address.
    pub pointer: CUdeviceptr,
    /// Bytes that were asked for.
    pub size: usize,
    /// Which call it came from.
    pub memory: MemoryType,
    /// The context it was allocated in.
    pub context: CUcontext,
    /// The ordinal of that context's device.
    pub device: i32,
}

/// A copy of the driver's account, as it was at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Books {
    /// Blocks that are allocated now, by address.
    pub live: Vec<LiveBlock>,
    /// Frees of memory that had been freed before.
    pub double_frees: u64,
    /// Frees of live memory through the entry point of another kind; refused.
    pub wrong_entry_frees: u64,
    /// Frees of addresses that were never the start of a block.
    pub unknown_frees: u64,
    /// Blocks that ended with their context, and were never freed.
    pub ended_with_context: u64,
    /// How often each entry point was called, by its exact name; failed calls count too.
    pub calls: BTreeMap<&'static str, u64>,
}

impl Books {
    /// How often an entry point was called.
    #[must_use]
    pub fn calls_of(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// Bytes that are allocated now, as they were asked for.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live.iter().map(|block| block.size).sum()
    }

    /// Whether nothing is live and nothing was freed wrongly.
    #[must_use]
    pub fn are_clean(&self) -> bool {
        self.live.is_empty()
            && self.double_frees == 0
            && self.wrong_entry_frees == 0
            && self.unknown_frees == 0
    }
}
