//! Finding who holds a pointer, among the default backends and an application's own.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use cumem_backend::{LiveAllocation, MemoryBackend, ReleaseError};

use crate::access::DriverBackend;
use crate::defaults::DEFAULTS;
use crate::error::{Cause, Error};

/// How many backends an application can register.
pub const MAX_REGISTERED_BACKENDS: usize = 64;

/// Filled from the front, never emptied. Each points to a leaked `&'static dyn`, since a fat pointer
/// can't be stored at once.
static REGISTERED: [AtomicPtr<&'static dyn DriverBackend>; MAX_REGISTERED_BACKENDS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_REGISTERED_BACKENDS];

/// Adds a backend to those that [`release`], [`owner_of`] and [`leak_report`](crate::leak_report)
/// ask, for the life of the process. They ask it before the default ones, and in the order of
/// registration: so a policy around a default backend is asked before that backend.
///
/// Lock-free; it allocates a few bytes once.
///
/// ```
/// use cumem::{MemoryBackend, PinnedBackend};
///
/// static MINE: PinnedBackend = PinnedBackend::new();
/// # let sim = cumem_sim::Sim::new();
/// # MINE.set_driver(sim.driver()?).map_err(drop).unwrap();
/// cumem::register_backend(&MINE)?;
/// let (ptr, ..) = MINE.allocate(64, 1)?.into_raw();
/// assert_eq!(cumem::owner_of(ptr).unwrap().kind, "pinned");
/// // SAFETY: nothing uses it.
/// unsafe { cumem::release(ptr) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::TooManyBackends`](crate::ErrorKind::TooManyBackends) after
/// [`MAX_REGISTERED_BACKENDS`]. Registering the same one again changes nothing.
pub fn register_backend(backend: &'static dyn DriverBackend) -> Result<(), Error> {
    let mine = Box::into_raw(Box::new(backend));
    for slot in &REGISTERED {
        // Success: Release publishes what `mine` points to, to the Acquire in `registered`.
        // Failure: Acquire, as there, since it is looked at.
        match slot.compare_exchange(ptr::null_mut(), mine, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return Ok(()),
            // SAFETY: what is in a slot was leaked there, and is never freed.
            Err(taken) if is_same(unsafe { *taken }, backend) => {
                // SAFETY: `mine` came from `Box::into_raw` above, and was published nowhere.
                drop(unsafe { Box::from_raw(mine) });
                return Ok(());
            }
            Err(_) => {}
        }
    }
    // SAFETY: `mine` came from `Box::into_raw` above, and was published nowhere.
    drop(unsafe { Box::from_raw(mine) });
    let most = MAX_REGISTERED_BACKENDS;
    Err(Cause::TooManyBackends { most }.into())
}

/// Whether both are one value. Two values of no size may have one address, and then hold nothing of
/// their own; a policy and the backend inside it may too, and then their types' names differ.
fn is_same(a: &'static dyn DriverBackend, b: &'static dyn DriverBackend) -> bool {
    ptr::addr_eq(a, b) && size_of_val(a) == size_of_val(b) && a.kind_name() == b.kind_name()
}

fn registered() -> impl Iterator<Item = &'static dyn DriverBackend> {
    REGISTERED
        .iter()
        // Acquire pairs with the Release in `register_backend`.
        .map(|slot| slot.load(Ordering::Acquire))
        .take_while(|backend| !backend.is_null())
        // SAFETY: what is in a slot was leaked there, and is never freed.
        .map(|backend| unsafe { *backend })
}

/// The registered backends, then the default ones.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn DriverBackend> {
    registered().chain(DEFAULTS.iter().copied())
}

/// Gives a pointer back to the default or [registered](register_backend) backend that holds it.
///
/// ```
/// use std::ptr::NonNull;
///
/// let mut local = 0_u8;
/// // SAFETY: this isn't memory of any backend, so it is refused.
/// let verdict = unsafe { cumem::release(NonNull::from(&mut local)) };
/// assert!(matches!(verdict, Err(cumem::ReleaseError::NotOwned { .. })));
/// ```
///
/// # Errors
/// [`ReleaseError::NotOwned`] if none does (the driver isn't called then), or what that backend
/// answered.
///
/// # Safety
/// If `ptr` is live memory of such a backend, nothing uses that memory any more, and no
/// [`Allocation`](crate::Allocation) or [`Buffer`](crate::Buffer) owns it.
pub unsafe fn release(ptr: NonNull<u8>) -> Result<(), ReleaseError> {
    match all().find(|backend| backend.find(ptr).is_some()) {
        // SAFETY: the caller's promise covers each of them.
        Some(owner) => unsafe { owner.release(ptr) },
        None => Err(not_owned(ptr)),
    }
}

/// What is known about a live pointer: its kind, device, size, and where it was allocated. `None` if
/// no default or [registered](register_backend) backend holds it.
///
/// ```
/// let mut local = 0_u8;
/// assert!(cumem::owner_of((&mut local).into()).is_none());
/// ```
#[must_use]
pub fn owner_of(ptr: NonNull<u8>) -> Option<LiveAllocation> {
    all().find_map(|backend| backend.find(ptr))
}

/// Gives a pointer back to the one of `backends` that holds it.
///
/// For programs with backends of their own; [`release`] does this with the default and the registered
/// ones.
///
/// # Errors
/// [`ReleaseError::NotOwned`] if none holds it, or what the owner answered.
///
/// # Safety
/// If `ptr` is live memory of one of them, nothing uses that memory any more, and no
/// [`Allocation`](crate::Allocation) owns it.
pub unsafe fn release_among(
    backends: &[&dyn MemoryBackend],
    ptr: NonNull<u8>,
) -> Result<(), ReleaseError> {
    // Only the owner is asked, so that the others don't count a pointer that isn't theirs.
    match backends.iter().find(|backend| backend.find(ptr).is_some()) {
        // SAFETY: the caller's promise.
        Some(owner) => unsafe { owner.release(ptr) },
        None => Err(not_owned(ptr)),
    }
}

fn not_owned(ptr: NonNull<u8>) -> ReleaseError {
    ReleaseError::NotOwned {
        kind: "CUDA",
        address: ptr.addr().get(),
    }
}
