//! The allocate and release protocol.

use core::fmt;
use core::panic::Location;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use cumem_sys::{CUcontext, CUresult, CUstream, CuError, Driver};
use ptr_registry::{Claim, Registry, buckets_for};

use crate::alignment::Request;
use crate::allocation::Allocation;
use crate::context::{ContextPolicy, Entered, PrimaryContext};
use crate::error::{AllocError, AllocFailure, ReleaseError};
use crate::exit;
use crate::kind::{HostAccess, MemoryKind, StreamOrderedKind, Target};
use crate::live::{LeakReport, LiveAllocation};
use crate::memory_backend::MemoryBackend;
use crate::pointer::to_device_ptr;
use crate::record::Record;
use crate::statistics::{Counters, Statistics};

/// How many pointers [`Backend::new`] holds.
pub const DEFAULT_CAPACITY: usize = 4096;

/// How many registry buckets that takes.
pub const DEFAULT_BUCKETS: usize = buckets_for(DEFAULT_CAPACITY);

/// Memory of one kind on one device, every live pointer of it recorded.
///
/// A backend is a plain value with `const` constructors, usable as a `static` and from any
/// thread. It calls the process-wide driver ([`Driver::global`]) unless it was given another one,
/// and finds it at the first allocation.
///
/// It keeps its registry inside itself: a quarter of a mebibyte with the default capacity. Make it a
/// `static`, or box it.
///
/// Dropping a backend releases whatever it still holds, so memory that was handed out raw must
/// no longer be in use then. A `static` is never dropped.
pub struct Backend<K: MemoryKind, const BUCKETS: usize = DEFAULT_BUCKETS> {
    kind: K,
    ordinal: i32,
    policy: ContextPolicy,
    /// Set by the first allocation that gets as far as the driver: from then on, the fields above
    /// and the driver are what memory was allocated with.
    in_use: AtomicBool,
    driver: OnceLock<Driver>,
    primary: PrimaryContext,
    counters: Counters,
    registry: Registry<BUCKETS, Record>,
}

impl<K: MemoryKind> Backend<K> {
    /// A backend that holds [`DEFAULT_CAPACITY`] pointers, on device 0.
    #[must_use]
    pub const fn new() -> Self {
        // Made at compile time, so that a backend made at run time is one copy on the stack; the
        // steps of `with_capacity` would be several in a debug build.
        const { Self::with_capacity(DEFAULT_CAPACITY) }
    }
}

impl<K: MemoryKind> Default for Backend<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: MemoryKind, const BUCKETS: usize> Backend<K, BUCKETS> {
    /// A backend that holds exactly `capacity` pointers, on device 0.
    ///
    /// `BUCKETS` is [`buckets_for(capacity)`](buckets_for).
    ///
    /// # Panics
    /// If `capacity` is more than `BUCKETS` buckets hold; in a `static` or `const`, that is a
    /// compile error.
    #[must_use]
    pub const fn with_capacity(capacity: usize) -> Self {
        Self {
            kind: K::DEFAULT,
            ordinal: 0,
            policy: ContextPolicy::Primary,
            in_use: AtomicBool::new(false),
            driver: OnceLock::new(),
            primary: PrimaryContext::new(),
            counters: Counters::new(),
            registry: Registry::with_capacity(capacity),
        }
    }

    /// Stops whoever would change what memory was already allocated with.
    const fn assert_unused(&mut self) {
        // SAFETY: the exclusive borrow makes this the only access, and a bool is a copy.
        let in_use = unsafe { ptr::read(&raw const self.in_use) }.into_inner();
        assert!(!in_use, "a backend that has allocated stays as it is");
    }

    /// The same backend with the kind's options chosen.
    ///
    /// # Panics
    /// If the backend has allocated; in a `static` or `const`, nothing has.
    #[must_use]
    pub const fn with_kind(mut self, kind: K) -> Self {
        self.assert_unused();
        self.kind = kind;
        self
    }

    /// The same backend on the device with this ordinal, counted from 0.
    ///
    /// # Panics
    /// If the backend has allocated.
    #[must_use]
    pub const fn on_device(mut self, ordinal: i32) -> Self {
        self.assert_unused();
        self.ordinal = ordinal;
        self
    }

    /// The same backend with another choice of context.
    ///
    /// # Panics
    /// If the backend has allocated; or if the kind's release needs a context
    /// ([`MemoryKind::RELEASE_NEEDS_CONTEXT`]) and the policy is [`ContextPolicy::Current`]: then a
    /// drop on a thread with another context, or none, could not release.
    #[must_use]
    pub const fn with_context(mut self, policy: ContextPolicy) -> Self {
        self.assert_unused();
        assert!(
            !K::RELEASE_NEEDS_CONTEXT || matches!(policy, ContextPolicy::Primary),
            "this kind's release needs the primary context"
        );
        self.policy = policy;
        self
    }

    /// The same backend calling `driver` instead of the process-wide one.
    ///
    /// # Panics
    /// If the backend has allocated.
    #[must_use]
    pub fn with_driver(mut self, driver: Driver) -> Self {
        self.assert_unused();
        exit::watch();
        self.driver = OnceLock::from(driver);
        self
    }

    /// Has this backend call `driver` instead of the process-wide one: for a `static` backend, which
    /// can't be moved through [`with_driver`](Self::with_driver).
    ///
    /// # Errors
    /// Gives `driver` back if the backend has a driver already: one that was set, or the
    /// process-wide one if it has allocated.
    pub fn set_driver(&self, driver: Driver) -> Result<(), Driver> {
        exit::watch();
        self.driver.set(driver)
    }

    /// How many pointers the backend can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.registry.capacity()
    }

    /// Allocates `size` bytes, at least 1, at a multiple of `align`, a power of two up to 2 MiB.
    ///
    /// The memory is uninitialised. It goes back on drop.
    ///
    /// # Errors
    /// [`AllocError`] says why, and what was live; nothing was kept.
    #[track_caller]
    pub fn allocate(&self, size: usize, align: usize) -> Result<Allocation<&Self>, AllocError> {
        Allocation::new_in(self, size, align)
    }

    /// Allocates `size` bytes for an allocator built on top: null on any failure.
    ///
    /// Nothing here panics or allocates from the heap, once the driver is loaded. The pointer is
    /// aligned to at least 256 bytes, and goes back through [`release_raw`](Self::release_raw).
    #[must_use = "the memory stays allocated until it is released"]
    #[track_caller]
    pub fn allocate_raw(&self, size: usize) -> *mut u8 {
        self.acquire(size, 1, Location::caller())
            .map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Gives a pointer back; whether it was held here and the driver took it.
    ///
    /// Null, foreign and already released pointers answer `false` without a driver call.
    /// [`MemoryBackend::release`] says more.
    ///
    /// # Safety
    /// If `ptr` is live memory of this backend, nothing uses that memory any more.
    pub unsafe fn release_raw(&self, ptr: *mut u8) -> bool {
        let Some(ptr) = NonNull::new(ptr) else {
            return false;
        };
        // SAFETY: the caller's promise is the same one.
        unsafe { self.release(ptr) }.is_ok()
    }

    /// Everything that is live, each as it was at some moment during the iteration.
    pub fn live(&self) -> impl Iterator<Item = LiveAllocation> {
        self.registry
            .iter()
            .map(|(ptr, record)| self.describe(ptr, &record))
    }

    /// Everything that is live, grouped by where it was allocated.
    #[must_use]
    pub fn leak_report(&self) -> LeakReport {
        self.live().collect()
    }

    /// Sets the peak to what is live now.
    pub fn reset_peak(&self) {
        self.counters.reset_peak();
    }

    /// Drops the records of memory that ended with `context`, without driver calls, and says how
    /// many. Call it after destroying a context in which this backend allocated, and before another
    /// one is made: the driver may give that the same handle, and its memory would be forgotten,
    /// which loses it. Owners of the forgotten memory own nothing any more; dropping them is fine.
    /// [`ContextPolicy::Current`] says what happens where this is not called.
    ///
    /// For a kind whose memory outlives its context, nothing is dropped.
    pub fn forget_context(&self, context: CUcontext) -> usize {
        if !K::DIES_WITH_CONTEXT {
            return 0;
        }
        let mut forgotten = 0;
        for (ptr, record) in self.registry.iter() {
            if record.context != context {
                continue;
            }
            // Between the look and the claim the address may have come to mean another block.
            match self.registry.claim(ptr) {
                Some(claim) if claim.value().context == context => {
                    self.forget(claim);
                    forgotten += 1;
                }
                _ => {}
            }
        }
        forgotten
    }

    /// The driver that this backend calls, found now if it wasn't before.
    ///
    /// # Errors
    /// The process-wide driver's [`LoadError`](cumem_sys::LoadError).
    pub fn driver(&self) -> Result<&Driver, &'static cumem_sys::LoadError> {
        match self.driver.get() {
            Some(driver) => Ok(driver),
            None => self.find_driver(),
        }
    }

    #[cold]
    fn find_driver(&self) -> Result<&Driver, &'static cumem_sys::LoadError> {
        let driver = Driver::global()?;
        exit::watch();
        Ok(self.driver.get_or_init(|| driver.clone()))
    }

    /// An allocation, in the order of `stream` if the kind has one.
    fn acquire_in_order(
        &self,
        size: usize,
        align: usize,
        stream: CUstream,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        Request::new(size, align)
            .map_err(AllocFailure::from)
            .and_then(|request| self.allocate_request(request, stream, site))
            .map_err(|failure| {
                if let AllocFailure::RegistryFull { .. } = failure {
                    self.counters.registry_full();
                } else {
                    self.counters.failed();
                }
                let held = self.counters.read();
                AllocError {
                    kind: K::NAME,
                    device: self.ordinal,
                    size,
                    align,
                    live: held.live,
                    live_bytes: held.live_bytes,
                    failure,
                }
            })
    }

    /// Steps 2 to 6 of the protocol.
    fn allocate_request(
        &self,
        request: Request,
        stream: CUstream,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocFailure> {
        // What is live is what the registry holds; two counters say it, where looking for a free
        // slot would read all of a full table. A full table that they miss, because other threads
        // are at work, is found when the pointer is registered.
        if self.counters.holds(self.registry.capacity()) {
            return Err(self.registry_full());
        }
        let driver = self.driver().map_err(AllocFailure::Driver)?;
        // Relaxed: read only through an exclusive borrow, which orders everything before it.
        if !self.in_use.load(Ordering::Relaxed) {
            self.in_use.store(true, Ordering::Relaxed);
        }
        match self.attempt(driver, request, stream, site) {
            // The device was reset, by whoever, and its primary context with it: retained again, it
            // is usable again. What was allocated in it is gone.
            Err(failure) if self.policy == ContextPolicy::Primary && failure.context_ended() => {
                self.primary
                    .renew(driver, self.ordinal)
                    .map_err(AllocFailure::Context)?;
                self.attempt(driver, request, stream, site)
            }
            result => result,
        }
    }

    /// Steps 3 to 6 of the protocol.
    fn attempt(
        &self,
        driver: &Driver,
        request: Request,
        stream: CUstream,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocFailure> {
        let entered = self.enter(driver).map_err(AllocFailure::Context)?;
        let ordinal = match self.policy {
            ContextPolicy::Primary => self.ordinal,
            // Wherever the caller's context is; what the backend was told is only a name then.
            ContextPolicy::Current => driver.ctx_get_device().map_err(AllocFailure::Context)?,
        };
        let target = Target {
            driver,
            ordinal,
            context: entered.context(),
            stream,
        };
        let fresh = self.allocate_fresh(target, request)?;
        let ptr = self.record(target, request, fresh, site)?;
        if let Some(Err(error)) = self
            .kind
            .after_registration(target, fresh.base, fresh.reserved)
        {
            self.counters.advice_refused(error.code());
        }
        Ok(ptr)
    }

    fn enter<'d>(&self, driver: &'d Driver) -> Result<Entered<'d>, CuError> {
        match self.policy {
            ContextPolicy::Primary => Entered::new(driver, self.primary.get(driver, self.ordinal)?),
            ContextPolicy::Current => Entered::current(driver),
        }
    }

    /// Step 4: a block that holds an aligned one of the wanted size.
    fn allocate_fresh(&self, target: Target<'_>, request: Request) -> Result<Fresh, AllocFailure> {
        let allocate = |reserved: usize| {
            match self.kind.allocate(target, reserved).map(NonNull::new) {
                Ok(Some(base)) => return Ok(Fresh { base, reserved }),
                Ok(None) => Err(AllocFailure::NullPointer),
                Err(error) => Err(out_of_memory_or_refused::<K>(
                    target.driver,
                    error,
                    reserved,
                )),
            }
            .inspect_err(|_| self.counters.asked_in_vain())
        };
        if request.may_fit_exactly(K::ALIGNMENT) {
            let fresh = allocate(request.size)?;
            if request.offset_from(fresh.base.addr().get()) == 0 {
                return Ok(fresh);
            }
            // The driver promises less than was wanted, and gave less: take a larger block.
            let Fresh { base, .. } = fresh;
            // SAFETY: the block came from `allocate` just above, and nothing knows of it yet.
            let freed = unsafe { self.kind.release(target.driver, base, target.stream) };
            self.counters.asked_in_vain();
            if let Err(error) = freed {
                self.counters.lost();
                return Err(AllocFailure::Refused(error));
            }
        }
        // At least the distance to the next aligned address, even should the driver have kept
        // less than its promise.
        allocate(request.padded_size(1))
    }

    /// Step 5: the pointer is registered, or the fresh memory is freed.
    fn record(
        &self,
        target: Target<'_>,
        request: Request,
        fresh: Fresh,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocFailure> {
        let offset = request.offset_from(fresh.base.addr().get());
        // SAFETY: `fresh.reserved` was chosen so that `offset + size` bytes lie inside it.
        let ptr = unsafe { fresh.base.add(offset) };
        self.forget_stale(ptr);
        let ticket = self.counters.allocated(request.size);
        let record = Record {
            size: request.size,
            reserved: fresh.reserved,
            offset: offset as u32,
            refused: CUresult::CUDA_SUCCESS,
            device: target.ordinal,
            context: target.context,
            stream: target.stream,
            ticket,
            site,
        };
        if self.registry.register(ptr, record).is_ok() {
            return Ok(ptr);
        }
        self.counters.not_registered(request.size);
        // SAFETY: the block is fresh, and nothing knows of it.
        if unsafe { self.kind.release(target.driver, fresh.base, target.stream) }.is_err() {
            self.counters.lost();
        }
        Err(self.registry_full())
    }

    fn registry_full(&self) -> AllocFailure {
        AllocFailure::RegistryFull {
            capacity: self.registry.capacity(),
        }
    }

    /// The driver has just given out this address, so a record of it can only be one of memory
    /// that ended with its context.
    fn forget_stale(&self, ptr: NonNull<u8>) {
        if K::DIES_WITH_CONTEXT
            && let Some(claim) = self.registry.claim(ptr)
        {
            self.forget(claim);
        }
    }

    fn forget(&self, claim: Claim<'_, Record>) {
        let record = claim.remove();
        self.counters.gone(record.size);
    }

    /// A release, with `free` as what gives the memory back to the driver.
    fn release_with(
        &self,
        ptr: NonNull<u8>,
        free: impl FnOnce(&Driver, NonNull<u8>, &Record) -> Result<(), CuError>,
    ) -> Result<(), ReleaseError> {
        self.release_claimed(ptr, self.registry.claim(ptr), free)
    }

    /// Frees through the kind's entry point, in the order of `stream`.
    ///
    /// # Safety
    /// As for [`MemoryKind::release`].
    unsafe fn free(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
        record: &Record,
        stream: CUstream,
    ) -> Result<(), CuError> {
        // It is the primary context, which this backend holds a reference to: `with_context` allows
        // such a kind no other. (The driver does not survive being given a destroyed one.)
        let _entered = if K::RELEASE_NEEDS_CONTEXT {
            Some(Entered::new(driver, record.context)?)
        } else {
            None
        };
        // SAFETY: the caller's promise is the same one.
        unsafe { self.kind.release(driver, base, stream) }
    }

    /// The rest of a release, once the record was claimed, or wasn't there to be.
    fn release_claimed(
        &self,
        ptr: NonNull<u8>,
        claim: Option<Claim<'_, Record>>,
        free: impl FnOnce(&Driver, NonNull<u8>, &Record) -> Result<(), CuError>,
    ) -> Result<(), ReleaseError> {
        let kind = K::NAME;
        let address = ptr.addr().get();
        let Some(claim) = claim else {
            self.counters.not_owned();
            return Err(ReleaseError::NotOwned { kind, address });
        };
        let record = claim.value();
        // A record exists only after a driver was found; were it not so, the claim's drop would
        // make the record live again.
        let Some(driver) = self.driver.get() else {
            return Err(ReleaseError::NotOwned { kind, address });
        };
        if exit::exiting() {
            self.counters.left_to_process_exit();
            return Err(ReleaseError::ProcessExit { kind, address });
        }
        if driver.is_forked() {
            self.counters.left_to_process_exit();
            return Err(ReleaseError::Forked { kind, address });
        }
        // SAFETY: the record says how far the caller's pointer is from the driver's, in one block.
        let base = unsafe { ptr.sub(record.offset as usize) };
        match free(driver, base, &record) {
            Ok(()) => {
                claim.remove();
                self.counters.released(record.size);
                Ok(())
            }
            Err(error) if self.is_gone(driver, base, error) => {
                self.forget(claim);
                Err(ReleaseError::Gone {
                    kind,
                    device: record.device,
                    address,
                    size: record.size,
                    error,
                })
            }
            Err(error) => {
                claim.restore_with(Record {
                    refused: error.code(),
                    ..record
                });
                self.counters.release_refused();
                Err(ReleaseError::Refused {
                    kind,
                    device: record.device,
                    address,
                    size: record.size,
                    error,
                })
            }
        }
    }

    /// Whether a refused free means that the memory no longer exists.
    ///
    /// The refusal alone doesn't tell: `CUDA_ERROR_INVALID_VALUE` is also the answer to a wrong
    /// pointer, and `CUDA_ERROR_CONTEXT_IS_DESTROYED` is said of the thread's context, not of the
    /// memory's. So the driver is asked whether it still knows the address.
    #[cold]
    fn is_gone(&self, driver: &Driver, base: NonNull<u8>, refusal: CuError) -> bool {
        match refusal.code() {
            CUresult::CUDA_ERROR_DEINITIALIZED => true,
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_INVALID_VALUE => {
                let answer = driver.pointer_memory_type(to_device_ptr(base.as_ptr()));
                answer.is_err_and(|error| error.code() == CUresult::CUDA_ERROR_INVALID_VALUE)
            }
            _ => false,
        }
    }

    fn describe(&self, ptr: NonNull<u8>, record: &Record) -> LiveAllocation {
        LiveAllocation {
            kind: K::NAME,
            device: record.device,
            ptr,
            size: record.size,
            reserved: record.reserved,
            context: record.context,
            refused: (record.refused != CUresult::CUDA_SUCCESS).then_some(record.refused),
            site: record.site,
        }
    }
}

impl<K: StreamOrderedKind, const BUCKETS: usize> Backend<K, BUCKETS> {
    /// Allocates in the order of `stream`: work that the stream is given after this may use the
    /// memory. Dropping the allocation releases it in the order of the same stream.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    ///
    /// # Safety
    /// - The stream is null, or live until the allocation was released; it belongs to the device, and
    ///   to the backend's context.
    /// - If other streams use the memory, `stream` waits for them (an event) before the allocation is
    ///   dropped: a drop releases it at that point of `stream`, and waits for nothing. Or end the
    ///   allocation with [`Allocation::release_on`], in the stream that used it last.
    #[track_caller]
    pub unsafe fn allocate_on(
        &self,
        stream: CUstream,
        size: usize,
        align: usize,
    ) -> Result<Allocation<&Self>, AllocError> {
        let ptr = self.acquire_in_order(size, align, stream, Location::caller())?;
        // SAFETY: the pointer is fresh, and only this value will release it.
        Ok(unsafe { Allocation::from_raw(ptr, size, self) })
    }

    /// Releases in the order of `stream`, which need not be the one of the allocation.
    ///
    /// # Errors
    /// As for [`MemoryBackend::release`].
    ///
    /// # Safety
    /// The stream is null, or live. If `ptr` is live memory of this backend, whatever uses it comes
    /// before this point of `stream`; work of other streams is ordered before it by events.
    pub unsafe fn release_on(
        &self,
        stream: CUstream,
        ptr: NonNull<u8>,
    ) -> Result<(), ReleaseError> {
        self.release_with(ptr, |driver, base, record| {
            // SAFETY: the claimed record is of a live block, and the caller promises the order.
            unsafe { self.free(driver, base, record, stream) }
        })
    }

    /// Releases at once and without a stream: for memory whose stream no longer exists.
    ///
    /// # Errors
    /// As for [`MemoryBackend::release`].
    ///
    /// # Safety
    /// If `ptr` is live memory of this backend, nothing uses it any more in any stream.
    pub unsafe fn release_synchronously(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        self.release_with(ptr, |driver, base, _| {
            // SAFETY: the claimed record is of a live block, and the caller promises that nothing
            // uses it.
            unsafe { self.kind.release_synchronously(driver, base) }
        })
    }
}

/// A block that the driver has just allocated.
#[derive(Clone, Copy)]
struct Fresh {
    base: NonNull<u8>,
    reserved: usize,
}

#[cold]
fn out_of_memory_or_refused<K: MemoryKind>(
    driver: &Driver,
    error: CuError,
    asked: usize,
) -> AllocFailure {
    if error.code() != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return AllocFailure::Refused(error);
    }
    // Memory that the host always may touch is the host's, of which the driver tells nothing.
    let free = match K::HOST_ACCESS {
        HostAccess::Always => None,
        _ => driver.mem_get_info().ok().map(|(free, _total)| free),
    };
    AllocFailure::OutOfMemory { error, asked, free }
}

// SAFETY: `MemoryKind` promises memory of the wanted size that nothing else uses; `record` hands
// it out at the wanted alignment; the registry lets a pointer be released only while it is live.
// All of it is independent of where the backend value lies.
unsafe impl<K: MemoryKind, const BUCKETS: usize> MemoryBackend for Backend<K, BUCKETS> {
    fn kind_name(&self) -> &'static str {
        K::NAME
    }

    fn device(&self) -> i32 {
        self.ordinal
    }

    fn host_access(&self) -> HostAccess {
        K::HOST_ACCESS
    }

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        self.acquire_in_order(size, align, ptr::null_mut(), site)
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        self.release_with(ptr, |driver, base, record| {
            // SAFETY: a record that was claimed is of a live block, which this is the only release
            // of, and for that case the caller promises that nothing uses its memory.
            unsafe { self.free(driver, base, record, record.stream) }
        })
    }

    fn ticket_of(&self, ptr: NonNull<u8>) -> u64 {
        self.registry.get(ptr).map_or(0, |record| record.ticket)
    }

    unsafe fn release_ticket(&self, ptr: NonNull<u8>, ticket: u64) -> Result<(), ReleaseError> {
        // Looked at before it is claimed: a claim would hide a newer block here from its owner. And
        // once more inside the claim, in case the newer block came in between.
        let is_ours = |record: Record| ticket == 0 || record.ticket == ticket;
        let claim = self
            .registry
            .get(ptr)
            .filter(|&record| is_ours(record))
            .and_then(|_| self.registry.claim(ptr))
            .filter(|claim| is_ours(claim.value()));
        self.release_claimed(ptr, claim, |driver, base, record| {
            // SAFETY: the claimed record is of a live block, which this is the only release of, and
            // the caller promises that nothing uses its memory.
            unsafe { self.free(driver, base, record, record.stream) }
        })
    }

    fn find(&self, ptr: NonNull<u8>) -> Option<LiveAllocation> {
        let record = self.registry.get(ptr)?;
        Some(self.describe(ptr, &record))
    }

    fn statistics(&self) -> Statistics {
        self.counters.read()
    }
}

impl<K: MemoryKind, const BUCKETS: usize> Drop for Backend<K, BUCKETS> {
    fn drop(&mut self) {
        let Some(driver) = self.driver.get() else {
            return;
        };
        for (ptr, _) in self.registry.iter() {
            // SAFETY: a backend is dropped only when nothing borrows it, so no `Allocation` is
            // left; its documentation asks that memory handed out raw is no longer used either.
            let _ = unsafe { self.release(ptr) };
        }
        if exit::exiting() || driver.is_forked() {
            return;
        }
        // SAFETY: all that was allocated in the context has just been released.
        unsafe { self.primary.release(driver, self.ordinal) };
    }
}

impl<K: MemoryKind, const BUCKETS: usize> fmt::Debug for Backend<K, BUCKETS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("kind", &K::NAME)
            .field("device", &self.ordinal)
            .field("capacity", &self.capacity())
            .field("statistics", &self.counters.read())
            .finish_non_exhaustive()
    }
}
