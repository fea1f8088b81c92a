//! The object-safe trait through which policies and pools stack.

use core::panic::Location;
use core::ptr::NonNull;

use crate::error::{AllocError, ReleaseError};
use crate::kind::HostAccess;
use crate::live::LiveAllocation;
use crate::statistics::Statistics;

/// Something that hands out memory and takes it back: a [`Backend`](crate::Backend), or a policy
/// or pool around one.
///
/// Object-safe, so `&dyn MemoryBackend` works where the type must not be known. References, boxes and
/// [`Arc`](std::sync::Arc)s of a backend are backends.
///
/// # Safety
/// - Memory from [`acquire`](Self::acquire) has at least the wanted size and alignment, and
///   nothing else uses it until it is handed to [`release`](Self::release) with success, even if
///   the backend value is moved meanwhile.
/// - [`host_access`](Self::host_access) tells the truth about it.
pub unsafe trait MemoryBackend: Send + Sync {
    /// The kind of memory, such as `"unified"`.
    fn kind_name(&self) -> &'static str;

    /// The ordinal of the device that it is bound to.
    fn device(&self) -> i32;

    /// Who may touch the memory from the host.
    fn host_access(&self) -> HostAccess;

    /// Allocates `size` bytes at a multiple of `align`, recorded as asked for at `site`.
    ///
    /// The memory is uninitialised, and stays allocated until it is handed to
    /// [`release`](Self::release): prefer [`Allocation`](crate::Allocation).
    ///
    /// # Errors
    /// [`AllocError`] says why; nothing was kept.
    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError>;

    /// Gives memory back.
    ///
    /// # Errors
    /// [`ReleaseError`] is the verdict; what is not ours is refused without a driver call.
    ///
    /// # Safety
    /// If `ptr` came from [`acquire`](Self::acquire) of this backend and is live, then nothing
    /// (the host, a kernel, a copy under way) uses its memory any more. Any other pointer is
    /// fine: it is refused.
    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError>;

    /// A number that tells the live allocation at this address from every other one that was or
    /// will be there; 0 if there is none, or if this backend doesn't tell them apart.
    ///
    /// An [`Allocation`](crate::Allocation) keeps it, so that an owner whose memory ended with its
    /// context can't release what the driver put at the same address since.
    fn ticket_of(&self, ptr: NonNull<u8>) -> u64 {
        let _ = ptr;
        0
    }

    /// [`release`](Self::release), but only of the allocation that the ticket is of.
    ///
    /// # Errors
    /// As for [`release`](Self::release); another allocation at the address, or none, is
    /// [`ReleaseError::NotOwned`].
    ///
    /// # Safety
    /// As for [`release`](Self::release), and nobody else ends the allocation that the ticket is of.
    unsafe fn release_ticket(&self, ptr: NonNull<u8>, ticket: u64) -> Result<(), ReleaseError> {
        let _ = ticket;
        // SAFETY: the caller's promise.
        unsafe { self.release(ptr) }
    }

    /// What is known about a live pointer; `None` if it isn't held here.
    fn find(&self, ptr: NonNull<u8>) -> Option<LiveAllocation>;

    /// A reading of the counters.
    fn statistics(&self) -> Statistics;
}

macro_rules! forward {
    ($pointer:ty) => {
        // SAFETY: every method is the inner backend's own, and the pointer to it keeps it where
        // it is.
        unsafe impl<B: MemoryBackend + ?Sized> MemoryBackend for $pointer {
            fn kind_name(&self) -> &'static str {
                (**self).kind_name()
            }

            fn device(&self) -> i32 {
                (**self).device()
            }

            fn host_access(&self) -> HostAccess {
                (**self).host_access()
            }

            fn acquire(
                &self,
                size: usize,
                align: usize,
                site: &'static Location<'static>,
            ) -> Result<NonNull<u8>, AllocError> {
                (**self).acquire(size, align, site)
            }

            unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
                // SAFETY: the caller's promise is the same one.
                unsafe { (**self).release(ptr) }
            }

            fn ticket_of(&self, ptr: NonNull<u8>) -> u64 {
                (**self).ticket_of(ptr)
            }

            unsafe fn release_ticket(
                &self,
                ptr: NonNull<u8>,
                ticket: u64,
            ) -> Result<(), ReleaseError> {
                // SAFETY: the caller's promise is the same one.
                unsafe { (**self).release_ticket(ptr, ticket) }
            }

            fn find(&self, ptr: NonNull<u8>) -> Option<LiveAllocation> {
                (**self).find(ptr)
            }

            fn statistics(&self) -> Statistics {
                (**self).statistics()
            }
        }
    };
}

forward!(&B);
forward!(Box<B>);
forward!(std::sync::Arc<B>);
