//! Regions of address space, given back when they are dropped.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What the processor lets the host do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    /// Touching it is a fault.
    None,
    ReadWrite,
}

impl Protection {
    fn flags(self) -> libc::c_int {
        match self {
            Self::None => libc::PROT_NONE,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// A mapped region, exclusively ours.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    bytes: usize,
}

/// Where stream-ordered memory begins on the real driver that was looked at.
const LOW_BASE: u64 = 0x3_0200_0000;

/// The step of that range.
const LOW_STEP: u64 = 32 << 20;

impl Mapping {
    /// Anonymous memory, of zeros, that takes no memory until it is written; `align` is a power of
    /// two. `None` if the system has no room.
    pub(crate) fn anonymous(bytes: usize, align: usize, protection: Protection) -> Option<Self> {
        let padded = bytes.checked_add(align)?;
        let address = map(0, padded, protection.flags(), 0, -1)?;
        let aligned = address.next_multiple_of(align);
        // SAFETY: both pieces are the ends of the fresh mapping, which nothing uses.
        unsafe {
            unmap(address, aligned - address);
            unmap(aligned + bytes, address + padded - aligned - bytes);
        }
        Some(Self {
            address: aligned,
            bytes,
        })
    }

    /// Address space in the low range, where the real driver has its stream-ordered memory; the
    /// host can't touch it. `bytes` is a multiple of 2 MiB.
    pub(crate) fn low(bytes: usize) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(LOW_BASE);
        let step = (bytes as u64).next_multiple_of(LOW_STEP);
        for _ in 0..64 {
            // Relaxed: a number that each caller takes for itself; the system has the last word.
            let wish = NEXT.fetch_add(step, Ordering::Relaxed);
            let fixed = libc::MAP_FIXED_NOREPLACE;
            let flags = Protection::None.flags();
            if let Some(address) = map(wish as usize, bytes, flags, fixed, -1) {
                return Some(Self { address, bytes });
            }
        }
        Self::anonymous(bytes, LOW_STEP as usize, Protection::None)
    }

    /// The pages of a file, shared with everyone who maps it.
    pub(crate) fn shared(bytes: usize, file: libc::c_int) -> Option<Self> {
        let address = map(0, bytes, Protection::ReadWrite.flags(), 0, file)?;
        Some(Self { address, bytes })
    }

    /// Maps the pages of a file over part of this region; the host can't touch them yet.
    pub(crate) fn overlay(
        &self,
        at: usize,
        bytes: usize,
        file: libc::c_int,
        offset: usize,
    ) -> bool {
        debug_assert!(at >= self.address && at + bytes <= self.address + self.bytes);
        // SAFETY: the range is part of this region, which is ours.
        let mapped = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(at),
                bytes,
                libc::PROT_NONE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file,
                offset as libc::off_t,
            )
        };
        mapped != libc::MAP_FAILED
    }

    /// Empties part of this region again.
    pub(crate) fn clear(&self, at: usize, bytes: usize) {
        debug_assert!(at >= self.address && at + bytes <= self.address + self.bytes);
        // SAFETY: the range is part of this region, which is ours.
        unsafe {
            libc::mmap(
                ptr::without_provenance_mut(at),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
    }

    /// Gives the pages of this region, which is anonymous memory, back to the system; they are zeros
    /// when they are touched again.
    pub(crate) fn discard(&self) {
        // SAFETY: the region is ours, and its bytes are of no use to anybody.
        unsafe {
            libc::madvise(
                ptr::without_provenance_mut(self.address),
                self.bytes,
                libc::MADV_DONTNEED,
            )
        };
    }

    /// Changes what the host may do with part of this region.
    pub(crate) fn protect(&self, at: usize, bytes: usize, protection: Protection) {
        debug_assert!(at >= self.address && at + bytes <= self.address + self.bytes);
        // SAFETY: the range is part of this region, which is ours.
        unsafe { libc::mprotect(ptr::without_provenance_mut(at), bytes, protection.flags()) };
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the region is ours, and whoever drops it has no use for it any more.
        unsafe { unmap(self.address, self.bytes) };
    }
}

fn map(
    wish: usize,
    bytes: usize,
    protection: libc::c_int,
    extra: libc::c_int,
    file: libc::c_int,
) -> Option<usize> {
    let kind = if file < 0 {
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE
    } else {
        libc::MAP_SHARED
    };
    // SAFETY: without MAP_FIXED the call only ever takes free address space.
    let mapped = unsafe {
        libc::mmap(
            ptr::without_provenance_mut(wish),
            bytes,
            protection,
            kind | extra,
            file,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let address = mapped.expose_provenance();
    if extra & libc::MAP_FIXED_NOREPLACE != 0 && address != wish {
        // A kernel that doesn't know the flag took the wish as a hint.
        // SAFETY: the fresh mapping isn't used.
        unsafe { unmap(address, bytes) };
        return None;
    }
    Some(address)
}

/// # Safety
/// The range is whole pages of a mapping that nobody uses any more, or empty.
unsafe fn unmap(address: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(ptr::without_provenance_mut(address), bytes) };
    }
}

/// A file without a name, of a number of bytes.
pub(crate) fn nameless_file(bytes: usize) -> Option<OwnedFd> {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"cumem-sim".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: the descriptor is fresh, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    let length = libc::off_t::try_from(bytes).ok()?;
    // SAFETY: the descriptor is open.
    (unsafe { libc::ftruncate(file.as_raw_fd(), length) } == 0).then_some(file)
}
