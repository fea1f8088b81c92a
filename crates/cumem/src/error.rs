//! The one error of this crate.

use core::fmt;

use cumem_backend::{AllocError, AllocFailure, ReleaseError};
use cumem_sys::{CuError, LoadError};

/// What went wrong, with everything that is known about it.
///
/// Match on [`kind`](Self::kind), which says what to do; [`source`](core::error::Error::source) is
/// the cause with its details, the driver's own answer at the end.
///
/// ```
/// use cumem::{Buffer, ErrorKind, UnifiedBackend};
///
/// let backend = UnifiedBackend::new().with_driver(cumem_sim::Sim::new().driver()?);
/// let error = Buffer::<u8, _>::zeroed(1 << 50, &backend).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::OutOfMemory);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Error {
    cause: Cause,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The driver, or a pool, has not enough memory left: release some, or ask for less.
    OutOfMemory,
    /// The backend holds as many pointers as it can: release some, or give it a larger capacity.
    RegistryFull,
    /// A policy's limit would be exceeded: release some, or raise the limit.
    LimitExceeded,
    /// No such allocation can exist: the size or the alignment is wrong.
    InvalidLayout,
    /// There is no usable driver on this machine.
    NoDriver,
    /// Two lengths that must be the same differ.
    LengthMismatch,
    /// The host may not touch this memory: copy it.
    HostAccess,
    /// The buffers came from different drivers, between which nothing can be copied.
    DifferentDrivers,
    /// The pointer is not held: it came from elsewhere, or was released before.
    NotOwned,
    /// The memory had already ended with its context or its driver.
    Gone,
    /// This process was forked from one that had initialised CUDA: start a new process instead.
    Forked,
    /// The process is exiting, and the driver is left alone.
    ProcessExit,
    /// There is no place left for what was to be registered.
    TooManyBackends,
    /// The driver refused for another reason: its code is in the source.
    Driver,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Alloc(AllocError),
    Release(ReleaseError),
    Load(&'static LoadError),
    Call { doing: &'static str, error: CuError },
    SizeOverflow { len: usize, size: usize },
    LengthMismatch { expected: usize, found: usize },
    HostNever { kind: &'static str },
    HostOnlyWhenIdle { kind: &'static str },
    DifferentDrivers,
    TooManyBackends { most: usize },
}

impl Error {
    /// What kind of thing went wrong: stable, to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            Cause::Alloc(error) => match error.failure() {
                AllocFailure::OutOfMemory { .. } | AllocFailure::PoolExhausted { .. } => {
                    ErrorKind::OutOfMemory
                }
                // The driver's "out of memory" is code 2, whoever asked.
                AllocFailure::Elsewhere { code: 2 } => ErrorKind::OutOfMemory,
                AllocFailure::RegistryFull { .. } => ErrorKind::RegistryFull,
                AllocFailure::LimitExceeded { .. } => ErrorKind::LimitExceeded,
                AllocFailure::ZeroSize | AllocFailure::Alignment | AllocFailure::TooLarge => {
                    ErrorKind::InvalidLayout
                }
                AllocFailure::Driver(_) => ErrorKind::NoDriver,
                _ => of_driver(error.driver_error()),
            },
            Cause::Release(error) => match error {
                ReleaseError::NotOwned { .. } => ErrorKind::NotOwned,
                ReleaseError::Gone { .. } => ErrorKind::Gone,
                ReleaseError::Forked { .. } => ErrorKind::Forked,
                ReleaseError::ProcessExit { .. } => ErrorKind::ProcessExit,
                _ => of_driver(error.driver_error()),
            },
            Cause::Load(_) => ErrorKind::NoDriver,
            Cause::Call { error, .. } => of_driver(Some(*error)),
            Cause::SizeOverflow { .. } => ErrorKind::InvalidLayout,
            Cause::LengthMismatch { .. } => ErrorKind::LengthMismatch,
            Cause::HostNever { .. } | Cause::HostOnlyWhenIdle { .. } => ErrorKind::HostAccess,
            Cause::DifferentDrivers => ErrorKind::DifferentDrivers,
            Cause::TooManyBackends { .. } => ErrorKind::TooManyBackends,
        }
    }

    /// The driver's own answer, if the driver was what refused.
    #[must_use]
    pub fn driver_error(&self) -> Option<CuError> {
        match &self.cause {
            Cause::Alloc(error) => error.driver_error(),
            Cause::Release(error) => error.driver_error(),
            Cause::Call { error, .. } => Some(*error),
            _ => None,
        }
    }

    pub(crate) fn call(doing: &'static str, error: CuError) -> Self {
        Cause::Call { doing, error }.into()
    }

    /// # Errors
    /// Unless the lengths are the same.
    pub(crate) fn check_lengths(expected: usize, found: usize) -> Result<(), Self> {
        if expected == found {
            Ok(())
        } else {
            Err(Cause::LengthMismatch { expected, found }.into())
        }
    }
}

fn of_driver(error: Option<CuError>) -> ErrorKind {
    match error {
        Some(error) if error.is_forked() => ErrorKind::Forked,
        _ => ErrorKind::Driver,
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self { cause }
    }
}

impl From<AllocError> for Error {
    fn from(error: AllocError) -> Self {
        Cause::Alloc(error).into()
    }
}

impl From<ReleaseError> for Error {
    fn from(error: ReleaseError) -> Self {
        Cause::Release(error).into()
    }
}

impl From<&'static LoadError> for Error {
    fn from(error: &'static LoadError) -> Self {
        Cause::Load(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Alloc(error) => error.fmt(f),
            Cause::Release(error) => error.fmt(f),
            Cause::Load(error) => write!(f, "no usable CUDA driver: {error}"),
            Cause::Call { doing, error } => write!(f, "could not {doing}: {error}"),
            Cause::SizeOverflow { len, size } => write!(
                f,
                "{len} elements of {size} bytes are more than one allocation can be; ask for fewer"
            ),
            Cause::LengthMismatch { expected, found } => write!(
                f,
                "{expected} elements were expected and {found} found; take a view of the part that \
                 is meant"
            ),
            Cause::HostNever { kind } => write!(
                f,
                "the host can't touch {kind} memory; copy it with copy_to_slice and copy_from_slice"
            ),
            Cause::HostOnlyWhenIdle { kind } => write!(
                f,
                "some device of this system has no concurrent managed access, so the host may touch \
                 {kind} memory only while no kernel runs; copy it, or wait for the device and use \
                 as_slice_unchecked"
            ),
            Cause::DifferentDrivers => f.write_str(
                "the two came from different drivers; copy through ordinary host memory instead",
            ),
            Cause::TooManyBackends { most } => write!(
                f,
                "{most} backends are registered already, and that is all there is room for"
            ),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.cause {
            Cause::Alloc(error) => Some(error),
            Cause::Release(error) => Some(error),
            Cause::Load(error) => Some(*error),
            Cause::Call { error, .. } => Some(error),
            _ => None,
        }
    }
}
