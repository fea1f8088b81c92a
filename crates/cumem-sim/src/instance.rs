//! One simulated driver: its configuration, its state, and what every call passes through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cumem_sys::CUresult;

use crate::address_space::AddressSpace;
use crate::books::{Books, LiveBlock, MemoryType};
use crate::config::SimBuilder;
use crate::context::Contexts;
use crate::fault::Fault;
use crate::fork;
use crate::memory::Block;

/// What a call answers: nothing, or an error code.
pub(crate) type Answer = Result<(), CUresult>;

/// Calls that work before `cuInit`.
const BEFORE_INIT: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
];

#[derive(Debug)]
pub(crate) struct Instance {
    /// Tells instances apart in what threads keep about them.
    pub(crate) id: u64,
    pub(crate) config: SimBuilder,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) initialised: bool,
    pub(crate) contexts: Contexts,
    /// Live blocks by address.
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Addresses that were freed, and not allocated again since.
    pub(crate) freed: BTreeSet<u64>,
    pub(crate) managed: AddressSpace,
    pub(crate) device: AddressSpace,
    pub(crate) pinned: AddressSpace,
    pub(crate) next_buffer_id: u64,
    pub(crate) double_frees: u64,
    pub(crate) wrong_entry_frees: u64,
    pub(crate) unknown_frees: u64,
    pub(crate) ended_with_context: u64,
    calls: BTreeMap<&'static str, u64>,
    faults: Vec<Fault>,
}

impl Instance {
    pub(crate) fn new(config: SimBuilder) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            // Relaxed: the numbers only have to differ.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(State {
                initialised: false,
                contexts: Contexts::new(config.devices),
                blocks: BTreeMap::new(),
                freed: BTreeSet::new(),
                managed: AddressSpace::new(true),
                device: AddressSpace::new(false),
                pinned: AddressSpace::new(true),
                next_buffer_id: 1,
                double_frees: 0,
                wrong_entry_frees: 0,
                unknown_frees: 0,
                ended_with_context: 0,
                calls: BTreeMap::new(),
                faults: Vec::new(),
            }),
            config,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic in one test must not hide the books from the next.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every call passes first: it is counted, and answered at once if it can't go on.
    pub(crate) fn admit(&self, name: &'static str) -> Answer {
        let mut state = self.state();
        *state.calls.entry(name).or_insert(0) += 1;
        if fork::in_child() {
            return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
        }
        let strike = state
            .faults
            .iter_mut()
            .find_map(|fault| fault.strikes(name));
        if let Some(code) = strike {
            state.faults.retain(|fault| !fault.is_spent());
            return Err(code);
        }
        if !state.initialised && !BEFORE_INIT.contains(&name) {
            return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
        }
        Ok(())
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    pub(crate) fn clear_faults(&self) {
        self.state().faults.clear();
    }

    pub(crate) fn books(&self) -> Books {
        let state = self.state();
        Books {
            live: state
                .blocks
                .iter()
                .map(|(&pointer, block)| LiveBlock {
                    pointer,
                    size: block.size,
                    memory: block.memory,
                    context: block.context,
                    device: block.device,
                })
                .collect(),
            double_frees: state.double_frees,
            wrong_entry_frees: state.wrong_entry_frees,
            unknown_frees: state.unknown_frees,
            ended_with_context: state.ended_with_context,
            calls: state.calls.clone(),
        }
    }
}

// SAFETY: the context handles inside are numbers that are never followed.
unsafe impl Send for State {}

impl State {
    pub(crate) fn space(&mut self, memory: MemoryType) -> &mut AddressSpace {
        match memory {
            MemoryType::Managed => &mut self.managed,
            MemoryType::Device => &mut self.device,
            MemoryType::Pinned => &mut self.pinned,
        }
    }
}
