//! One simulated driver: what all calls pass through, and the state that they share.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use cumem_sys::CUresult;

use crate::books::{Books, Counters, History, Kind, Live};
use crate::config::Config;
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::fault::{Effect, Faults};
use crate::fork;
use crate::memory::region::Spare;
use crate::memory::virtual_memory::{Handle, Reservation};
use crate::memory::{Allocation, Usage};
use crate::pool::Pool;
use crate::stream::{self, Stream};
use crate::table::{Call, EntryKind};

/// What an entry point answers.
pub(crate) type Answer<T = ()> = Result<T, CUresult>;

#[derive(Debug)]
pub(crate) struct Instance {
    number: u64,
    me: Weak<Instance>,
    config: Config,
    counters: Counters,
    faults: Faults,
    /// 0 before `cuInit`; then one more than the process generation that called it.
    initialised: AtomicU64,
    deinitialised: AtomicBool,
    state: Mutex<State>,
    /// Signalled whenever a stream may go on, or a wait may be over.
    pub(crate) progress: Condvar,
}

/// Everything that calls change, under one lock. No lock is held while a program's own function
/// runs, or while bytes are moved.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: HashMap<usize, Context>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) usage: Usage,
    pub(crate) spare: Spare,
    pub(crate) streams: HashMap<usize, Stream>,
    pub(crate) events: HashMap<usize, Event>,
    pub(crate) pools: HashMap<usize, Pool>,
    pub(crate) reservations: BTreeMap<u64, Reservation>,
    pub(crate) handles: HashMap<u64, Handle>,
    pub(crate) history: History,
    /// How many pieces of work were put into streams.
    pub(crate) work_count: u64,
    /// Host and device can't touch managed memory at the same time.
    pub(crate) guards_managed: bool,
    /// The device is at work, and managed memory is taken from the host.
    pub(crate) managed_shut: bool,
    /// How many hold the streams.
    pub(crate) holds: usize,
    /// No more work is begun.
    pub(crate) ending: bool,
}

/// A value that no handle had before, in any simulated driver of the process.
pub(crate) fn fresh_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5500_0000_0000);
    // Relaxed: only a number that nobody else gets.
    NEXT.fetch_add(0x100, Ordering::Relaxed)
}

impl Instance {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        fork::watch();
        let faults = Faults::default();
        for fault in &config.faults {
            faults.add(fault.clone());
        }
        let mut state = State {
            guards_managed: !config.concurrent_managed_access(),
            ..State::default()
        };
        for ordinal in 0..config.devices.max(0) {
            let device = Device::new(&mut state, ordinal);
            state.devices.push(device);
        }
        Arc::new_cyclic(|me| Self {
            // Relaxed: only a number that nobody else gets.
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            me: Weak::clone(me),
            config,
            counters: Counters::new(),
            faults,
            initialised: AtomicU64::new(0),
            deinitialised: AtomicBool::new(false),
            state: Mutex::new(state),
            progress: Condvar::new(),
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.progress
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What every call passes through.
    #[inline]
    pub(crate) fn enter(&self, call: Call, body: impl FnOnce(&Self) -> Answer) -> CUresult {
        self.counters.called(call);
        match self.admit(call).and_then(|()| body(self)) {
            Ok(()) => CUresult::CUDA_SUCCESS,
            Err(code) => {
                self.counters.failed(call);
                code
            }
        }
    }

    fn admit(&self, call: Call) -> Answer {
        if self.config.stub {
            return Err(CUresult::CUDA_ERROR_STUB_LIBRARY);
        }
        let early = call.entry().kind == EntryKind::Early;
        // Acquire: pairs with the Release store of `cuInit`.
        let initialised = self.initialised.load(Ordering::Acquire);
        if !early || call == Call::cuInit {
            if initialised != 0 && initialised != fork::generation() + 1 {
                return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
            }
            // Relaxed: who has shut the driver down tells other threads by its own means.
            if self.deinitialised.load(Ordering::Relaxed) {
                return Err(CUresult::CUDA_ERROR_DEINITIALIZED);
            }
            if stream::in_callback() {
                return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
            }
        }
        if self.config.latency_of_all.is_some() || !self.config.latency.is_empty() {
            let latency = self.config.latency.get(&call);
            if let Some(latency) = latency.or(self.config.latency_of_all.as_ref()) {
                std::thread::sleep(*latency);
            }
        }
        if let Some(effect) = self.faults.hit(call) {
            self.counters.fault();
            match effect {
                Effect::Answer(CUresult::CUDA_SUCCESS) => {}
                Effect::Answer(code) => return Err(code),
                Effect::DestroyContext => {
                    if let Some(context) = self.top_of_stack() {
                        self.destroy_from_outside(context);
                    }
                }
            }
        }
        if !early && initialised == 0 {
            return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
        }
        Ok(())
    }

    #[expect(non_snake_case, reason = "the entry point's name")]
    pub(crate) unsafe fn cuInit(&self, flags: c_uint) -> Answer {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if self.config.init != CUresult::CUDA_SUCCESS {
            return Err(self.config.init);
        }
        if self.config.devices <= 0 {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        // Release: pairs with the Acquire load of `admit`.
        self.initialised
            .store(fork::generation() + 1, Ordering::Release);
        if self.config.deinitialise_at_exit
            && let Some(me) = self.me()
        {
            exit::deinitialise(me);
        }
        Ok(())
    }

    #[expect(non_snake_case, reason = "the entry point's name")]
    pub(crate) unsafe fn cuDriverGetVersion(&self, version: *mut c_int) -> Answer {
        // SAFETY: the caller gave a place for one integer, or null.
        unsafe { put(version, self.config.driver_version) }
    }

    pub(crate) fn is_forked(&self) -> bool {
        // Acquire: as in `admit`.
        let initialised = self.initialised.load(Ordering::Acquire);
        initialised != 0 && initialised != fork::generation() + 1
    }

    pub(crate) fn deinitialise(&self) {
        // Relaxed: as in `admit`.
        self.deinitialised.store(true, Ordering::Relaxed);
    }

    pub(crate) fn hold_streams(&self) {
        self.state().holds += 1;
    }

    pub(crate) fn release_streams(&self) {
        self.state().holds -= 1;
        self.progress.notify_all();
    }

    /// Ends all workers. Work that was not begun is never done.
    pub(crate) fn shut_down(&self) {
        let mut state = self.state();
        state.ending = true;
        self.progress.notify_all();
        if stream::on_worker() {
            return;
        }
        while state.streams.values().any(|stream| stream.is_running()) {
            state = self.wait(state);
        }
    }

    pub(crate) fn books(&self) -> Books {
        let mut books = Books::default();
        self.counters.fill(&mut books);
        let state = self.state();
        state.history.fill(&mut books);
        books.live = state
            .allocations
            .iter()
            .map(|(&pointer, allocation)| Live {
                pointer,
                bytes: allocation.bytes,
                kind: allocation.kind,
                device: allocation.device,
                context: allocation.context as u64,
            })
            .chain(
                state
                    .reservations
                    .iter()
                    .map(|(&pointer, reservation)| Live {
                        pointer,
                        bytes: reservation.bytes(),
                        kind: Kind::Reserved,
                        device: -1,
                        context: 0,
                    }),
            )
            .chain(state.handles.iter().map(|(&pointer, handle)| Live {
                pointer,
                bytes: handle.physical.bytes(),
                kind: Kind::Physical,
                device: handle.physical.device(),
                context: 0,
            }))
            .collect();
        books.live.sort_by_key(|live| live.pointer);
        books
    }

    pub(crate) fn reset_books(&self) {
        self.counters.reset();
        let mut state = self.state();
        state.history.refused.clear();
        state.history.leaked.clear();
    }
}

/// Writes an out parameter.
///
/// # Safety
/// `target` is null, or valid for a write; it need not be aligned.
pub(crate) unsafe fn put<T>(target: *mut T, value: T) -> Answer {
    if target.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { target.write_unaligned(value) };
    Ok(())
}

/// Writes an out parameter whose type the caller chose by a number.
///
/// # Safety
/// As for [`put`], for a `T`.
pub(crate) unsafe fn put_as<T>(target: *mut c_void, value: T) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { put(target.cast::<T>(), value) }
}

mod exit {
    //! What happens when the process exits.

    use std::sync::{Arc, Mutex, Once, PoisonError};

    use super::Instance;

    static AT_EXIT: Mutex<Vec<Arc<Instance>>> = Mutex::new(Vec::new());

    extern "C" fn run() {
        for instance in AT_EXIT
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            instance.deinitialise();
        }
    }

    /// Shuts an instance down when the process exits.
    pub(super) fn deinitialise(instance: Arc<Instance>) {
        static ONCE: Once = Once::new();
        let mut list = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|one| Arc::ptr_eq(one, &instance)) {
            list.push(instance);
        }
        ONCE.call_once(|| {
            // SAFETY: the handler is a function of this library, which is never unloaded after
            // `cuInit`, and it doesn't unwind.
            unsafe { libc::atexit(run) };
        });
    }
}
