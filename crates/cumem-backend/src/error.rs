//! What can go wrong, with everything that is known about it.

use core::error::Error;
use core::fmt;

use cumem_sys::{CUresult, CuError, LoadError};

use crate::alignment::{BadRequest, MAX_ALIGNMENT};

/// An allocation that did not happen.
///
/// Carries the request, what the backend held at that moment, and the [cause](AllocFailure).
/// It holds no heap memory: making one is safe inside an allocator.
#[derive(Clone, Copy, Debug)]
pub struct AllocError {
    pub(crate) kind: &'static str,
    pub(crate) device: i32,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) live: usize,
    pub(crate) live_bytes: usize,
    pub(crate) failure: AllocFailure,
}

/// Why an allocation did not happen.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AllocFailure {
    /// Zero bytes were asked for. No driver call was made.
    ZeroSize,
    /// The alignment is not a power of two, or larger than 2 MiB. No driver call was made.
    Alignment,
    /// More bytes than an object can have on this machine. No driver call was made.
    TooLarge,
    /// The backend already holds as many pointers as it can. No memory was kept.
    RegistryFull {
        /// How many pointers that is.
        capacity: usize,
    },
    /// There is no usable driver.
    Driver(&'static LoadError),
    /// The context could not be made current.
    Context(CuError),
    /// The driver has not enough memory left.
    OutOfMemory {
        /// The driver's answer.
        error: CuError,
        /// Bytes that the driver was asked for: more than the caller asked for where the alignment
        /// needed it.
        asked: usize,
        /// Bytes that the driver said were free on the device just afterwards; `None` if it did not
        /// answer, and for host memory, of which it tells nothing.
        free: Option<usize>,
    },
    /// The driver refused for another reason.
    Refused(CuError),
    /// The driver reported success and gave a null pointer.
    NullPointer,
    /// A pool had no block left, after it gathered what its threads had cached and gave empty
    /// segments back. What was in use is [`AllocError::live_bytes`].
    PoolExhausted {
        /// Bytes that the pool may hold at most.
        limit: usize,
        /// Bytes that it held.
        reserved: usize,
        /// Bytes in blocks that were cached, and couldn't be gathered.
        cached: usize,
        /// Bytes of the largest block that it could still have given.
        largest_free: usize,
        /// What the driver answered when asked for more, if it was asked.
        refused: Option<CUresult>,
    },
    /// Another library, through which the backend allocates, was refused by the driver.
    Elsewhere {
        /// The driver's code.
        code: u32,
    },
    /// A policy around the backend allows no more bytes. No driver call was made.
    LimitExceeded {
        /// The bytes that it allows at once.
        limit: usize,
    },
}

impl AllocError {
    /// For pools and policies that find out for themselves that there is no memory.
    ///
    /// `live` and `live_bytes` are what they had handed out at that moment.
    #[must_use]
    pub fn new(
        backend: &(impl crate::MemoryBackend + ?Sized),
        (size, align): (usize, usize),
        (live, live_bytes): (usize, usize),
        failure: AllocFailure,
    ) -> Self {
        Self {
            kind: backend.kind_name(),
            device: backend.device(),
            size,
            align,
            live,
            live_bytes,
            failure,
        }
    }

    /// The kind of memory, such as `"unified"`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The device's ordinal.
    #[must_use]
    pub fn device(&self) -> i32 {
        self.device
    }

    /// Bytes that were asked for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The alignment that was asked for, in bytes.
    #[must_use]
    pub fn align(&self) -> usize {
        self.align
    }

    /// Allocations that the backend held at that moment.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Bytes that the backend held at that moment.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The cause.
    #[must_use]
    pub fn failure(&self) -> AllocFailure {
        self.failure
    }

    /// The driver's own answer, if the driver was what refused.
    #[must_use]
    pub fn driver_error(&self) -> Option<CuError> {
        match self.failure {
            AllocFailure::Context(error)
            | AllocFailure::OutOfMemory { error, .. }
            | AllocFailure::Refused(error) => Some(error),
            _ => None,
        }
    }
}

impl AllocFailure {
    /// Whether the driver says that the context it was asked in has ended.
    pub(crate) fn context_ended(&self) -> bool {
        match self {
            Self::Context(error) | Self::Refused(error) => {
                error.code() == CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            }
            _ => false,
        }
    }
}

impl From<BadRequest> for AllocFailure {
    fn from(bad: BadRequest) -> Self {
        match bad {
            BadRequest::ZeroSize => Self::ZeroSize,
            BadRequest::Alignment => Self::Alignment,
            BadRequest::TooLarge => Self::TooLarge,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "could not allocate {} bytes of {} memory (alignment {}) on device {}: ",
            self.size, self.kind, self.align, self.device
        )?;
        match self.failure {
            AllocFailure::ZeroSize => f.write_str("an allocation has at least one byte")?,
            AllocFailure::Alignment => {
                write!(
                    f,
                    "the alignment must be a power of two up to {MAX_ALIGNMENT}"
                )?;
            }
            AllocFailure::TooLarge => f.write_str("no object can be that large")?,
            AllocFailure::RegistryFull { capacity } => write!(
                f,
                "the registry is full ({capacity} pointers); release some, or give the backend a \
                 larger capacity"
            )?,
            AllocFailure::Driver(error) => write!(f, "no usable CUDA driver: {error}")?,
            AllocFailure::Context(error) => write!(f, "no usable context: {error}")?,
            AllocFailure::OutOfMemory { error, asked, free } => {
                write!(f, "{error}; the driver was asked for {asked} bytes")?;
                match free {
                    Some(free) => write!(f, ", and says {free} bytes of the device are free")?,
                    None => f.write_str(" and has no more of this memory")?,
                }
            }
            AllocFailure::Refused(error) => write!(f, "{error}")?,
            AllocFailure::NullPointer => {
                f.write_str("the driver reported success and gave a null pointer")?;
            }
            AllocFailure::PoolExhausted {
                limit,
                reserved,
                cached,
                largest_free,
                refused,
            } => {
                write!(
                    f,
                    "the pool holds {reserved} bytes of at most {limit}, {cached} of them cached; \
                     the largest free block has {largest_free}"
                )?;
                if let Some(code) = refused {
                    write!(f, "; the driver refused more (code {})", code.0)?;
                }
            }
            AllocFailure::Elsewhere { code } => write!(f, "the driver answered code {code}")?,
            AllocFailure::LimitExceeded { limit } => write!(
                f,
                "that would exceed the limit of {limit} bytes; release some, or raise the limit"
            )?,
        }
        write!(
            f,
            "; {} allocations ({} bytes) of this backend were live",
            self.live, self.live_bytes
        )
    }
}

impl Error for AllocError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.failure {
            AllocFailure::Driver(error) => Some(*error),
            AllocFailure::Context(error)
            | AllocFailure::OutOfMemory { error, .. }
            | AllocFailure::Refused(error) => Some(error),
            _ => None,
        }
    }
}

/// A release that did not return memory to the driver.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The pointer is not held here: it never came from this backend, or it was released
    /// before. No driver call was made.
    NotOwned {
        /// The kind of memory that the backend holds.
        kind: &'static str,
        /// The pointer's address.
        address: usize,
    },
    /// The pointer is the start of a pool's block that was released before.
    AlreadyReleased {
        /// The kind of memory that the pool holds.
        kind: &'static str,
        /// The pointer's address.
        address: usize,
    },
    /// The pointer is inside a pool's memory, where no block starts.
    Interior {
        /// The kind of memory that the pool holds.
        kind: &'static str,
        /// The pointer's address.
        address: usize,
    },
    /// The driver refused. The allocation is live again and can be released once more.
    Refused {
        /// The kind of memory.
        kind: &'static str,
        /// The ordinal of the device that it was allocated on.
        device: i32,
        /// The pointer's address.
        address: usize,
        /// Bytes that stay allocated.
        size: usize,
        /// The driver's answer.
        error: CuError,
    },
    /// The memory no longer existed: its context was destroyed, or the driver was already shut
    /// down. The record is gone.
    Gone {
        /// The kind of memory.
        kind: &'static str,
        /// The ordinal of the device that it was allocated on.
        device: i32,
        /// The address that the pointer had.
        address: usize,
        /// Bytes that the allocation had.
        size: usize,
        /// The driver's answer.
        error: CuError,
    },
    /// This process is a forked child, in which the parent's driver handles are dead. The
    /// parent still owns the memory. No driver call was made.
    Forked {
        /// The kind of memory.
        kind: &'static str,
        /// The pointer's address.
        address: usize,
    },
    /// The process is exiting, and the memory ends with it. No driver call was made.
    ProcessExit {
        /// The kind of memory.
        kind: &'static str,
        /// The pointer's address.
        address: usize,
    },
}

impl ReleaseError {
    /// The driver's own answer, if the driver was asked.
    #[must_use]
    pub fn driver_error(&self) -> Option<CuError> {
        match *self {
            Self::Refused { error, .. } | Self::Gone { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOwned { kind, address } => write!(
                f,
                "{address:#x} is not live {kind} memory held here: it came from elsewhere, \
                 or was already released"
            ),
            Self::AlreadyReleased { kind, address } => write!(
                f,
                "the block of pooled {kind} memory at {address:#x} was already released"
            ),
            Self::Interior { kind, address } => {
                write!(f, "no block of pooled {kind} memory starts at {address:#x}")
            }
            Self::Refused {
                kind,
                device,
                address,
                size,
                error,
            } => write!(
                f,
                "the driver did not free {size} bytes of {kind} memory of device {device} at \
                 {address:#x}, which stay live: {error}"
            ),
            Self::Gone {
                kind,
                device,
                address,
                size,
                error,
            } => write!(
                f,
                "{size} bytes of {kind} memory of device {device} at {address:#x} no longer existed \
                 (their context was destroyed, or the driver was shut down): {error}"
            ),
            Self::Forked { kind, address } => write!(
                f,
                "{kind} memory at {address:#x} belongs to the parent of this forked process; \
                 start CUDA work in a fresh process instead"
            ),
            Self::ProcessExit { kind, address } => write!(
                f,
                "the process is exiting; {kind} memory at {address:#x} ends with it"
            ),
        }
    }
}

impl Error for ReleaseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused { error, .. } | Self::Gone { error, .. } => Some(error),
            _ => None,
        }
    }
}
