//! The contract of a memory kind.

use core::ptr::NonNull;

use cumem_sys::{CUcontext, CUstream, CuError, Driver};

/// Who may touch memory from the host, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostAccess {
    /// The host never may: touching it faults. Copy through the driver.
    Never,
    /// The host may whenever the device supports concurrent managed access
    /// (`CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`), and otherwise only while no kernel runs
    /// on the device.
    Managed,
    /// The host always may.
    Always,
}

/// Where the driver is to allocate: handed to a kind, with the context already current.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Target<'a> {
    /// The driver to call.
    pub driver: &'a Driver,
    /// The device's ordinal, counted from 0.
    pub ordinal: i32,
    /// The context that is current on this thread.
    pub context: CUcontext,
    /// The stream whose order the memory is to follow, for a [`StreamOrderedKind`]; else null.
    pub stream: CUstream,
}

/// What is special about one kind of memory; [`Backend`](crate::Backend) does the rest.
///
/// # Safety
/// - [`allocate`](Self::allocate) returns the start of at least `size` bytes that nothing else
///   uses until they are handed to [`release`](Self::release), at an address that is a multiple
///   of [`ALIGNMENT`](Self::ALIGNMENT).
/// - If [`HOST_ACCESS`](Self::HOST_ACCESS) isn't [`HostAccess::Never`], the host may read and
///   write those bytes through the pointer, under the condition that the constant names.
pub unsafe trait MemoryKind: Copy + Send + Sync + 'static {
    /// The kind's name in errors and reports, such as `"unified"`.
    const NAME: &'static str;

    /// The kind with nothing chosen: what [`Backend::new`](crate::Backend::new) uses.
    const DEFAULT: Self;

    /// Who may touch the memory from the host.
    const HOST_ACCESS: HostAccess;

    /// Bytes of alignment that the driver promises for every size. NVIDIA documents 256 for
    /// device memory (CUDA C++ Programming Guide, "Device Memory Accesses").
    const ALIGNMENT: usize = 256;

    /// Whether the driver's free wants a current context.
    ///
    /// `cuMemFree_v2` and `cuMemFreeHost` do not, and then nothing is pushed or popped.
    const RELEASE_NEEDS_CONTEXT: bool = false;

    /// Whether destroying a context frees this kind's memory with it.
    const DIES_WITH_CONTEXT: bool = true;

    /// Asks the driver for `size` bytes, `size` being at least 1. A null pointer in a success is
    /// the backend's to refuse.
    ///
    /// # Errors
    /// The driver's own answer.
    fn allocate(&self, target: Target<'_>, size: usize) -> Result<*mut u8, CuError>;

    /// Gives `base` back through the one entry point that belongs to
    /// [`allocate`](Self::allocate), in the order of `stream` for a [`StreamOrderedKind`]. Other
    /// kinds are given a null stream.
    ///
    /// # Errors
    /// The driver's own answer; the memory is then still allocated.
    ///
    /// # Safety
    /// `base` came from `allocate` of an equal kind on the same driver, was not released since,
    /// and nothing uses the memory any more, or for a stream-ordered kind, nothing after this point
    /// of `stream`, which is live, or null.
    unsafe fn release(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
        stream: CUstream,
    ) -> Result<(), CuError>;

    /// Runs after the pointer was registered: advice, for example. `None` when the kind has
    /// nothing to say to the driver.
    ///
    /// A refusal is counted and readable ([`Statistics`](crate::Statistics)), never fatal:
    /// devices without concurrent managed access refuse all advice.
    fn after_registration(
        &self,
        target: Target<'_>,
        base: NonNull<u8>,
        size: usize,
    ) -> Option<Result<(), CuError>> {
        let _ = (target, base, size);
        None
    }
}

/// A kind whose memory is allocated and released in the order of a stream.
///
/// # Safety
/// Beyond [`MemoryKind`]: memory may be used in stream order after its allocation, and
/// [`release`](MemoryKind::release) takes effect in stream order.
/// [`release_synchronously`](Self::release_synchronously) needs no stream.
pub unsafe trait StreamOrderedKind: MemoryKind {
    /// Gives `base` back at once, without a stream.
    ///
    /// # Errors
    /// The driver's own answer; the memory is then still allocated.
    ///
    /// # Safety
    /// As for [`MemoryKind::release`], and nothing uses the memory any more in any stream.
    unsafe fn release_synchronously(
        &self,
        driver: &Driver,
        base: NonNull<u8>,
    ) -> Result<(), CuError>;
}
