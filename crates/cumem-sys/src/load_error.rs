//! Why there is no usable driver, and what to do about it.

use core::error::Error;
use core::fmt;

use crate::bindings::CUresult;
use crate::error::CuError;
use crate::table::Symbol;
use crate::version::Version;

/// The environment variable that names the one library to load.
pub const DRIVER_PATH_VARIABLE: &str = "CUMEM_DRIVER_PATH";

/// The oldest driver API that this crate works with, as the driver counts: CUDA 11.0.
pub const OLDEST_DRIVER: i32 = 11000;

/// A library that was tried and not used, and why.
#[derive(Clone, Debug)]
pub struct Attempt {
    candidate: String,
    message: String,
    stub: bool,
}

impl Attempt {
    pub(crate) fn failed(candidate: String, message: String) -> Self {
        Self {
            candidate,
            message,
            stub: false,
        }
    }

    pub(crate) fn stub(file: String) -> Self {
        Self {
            candidate: file,
            message: "the CUDA toolkit's stub library (CUDA_ERROR_STUB_LIBRARY)".to_owned(),
            stub: true,
        }
    }

    /// What was asked of the dynamic loader: a file name or a path. Of a stub, its file.
    #[must_use]
    pub fn candidate(&self) -> &str {
        &self.candidate
    }

    /// What the loader, or the library, answered.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether it was the CUDA toolkit's stub library.
    #[must_use]
    pub fn is_stub(&self) -> bool {
        self.stub
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Loaders often begin with the name that they were asked for.
        match self.message.starts_with(&self.candidate) {
            true => f.write_str(&self.message),
            false => write!(f, "{}: {}", self.candidate, self.message),
        }
    }
}

/// Why there is no usable driver. Its `Display` says what to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The search found no library that could be opened.
    NotFound {
        /// Everything that was tried, in order.
        attempts: Vec<Attempt>,
    },
    /// The one library that was named could not be opened.
    CannotOpen {
        /// The library, and what the loader said.
        attempt: Attempt,
        /// Whether it was named by the environment variable `CUMEM_DRIVER_PATH`, and not by the
        /// program.
        from_environment: bool,
    },
    /// All that was found is the CUDA toolkit's stub library, which is for linking only.
    Stub {
        /// The stub's file.
        library: String,
        /// Everything that was tried, in order.
        attempts: Vec<Attempt>,
    },
    /// The library lacks a symbol that every supported driver has.
    MissingSymbol {
        /// The library's file.
        library: String,
        /// The first one that it lacks.
        symbol: &'static Symbol,
        /// The version that the library says it is of, if it says.
        version: Option<i32>,
    },
    /// The driver is older than [`OLDEST_DRIVER`].
    TooOld {
        /// The library's file.
        library: String,
        /// The driver's API version, as it counts: 10020 is 10.2.
        version: i32,
    },
    /// The driver works, but sees no device.
    NoDevice {
        /// The library's file.
        library: String,
        /// The driver's answer.
        error: CuError,
    },
    /// The library and the system's driver don't fit together (codes 803 and 804).
    Mismatch {
        /// The library's file.
        library: String,
        /// The library's API version, if it said.
        version: Option<i32>,
        /// The driver's answer.
        error: CuError,
    },
    /// The system forbids the use of the driver.
    NotPermitted {
        /// The library's file.
        library: String,
        /// The driver's answer.
        error: CuError,
    },
    /// This process was forked from one that had initialised the driver, which does not survive
    /// that.
    Forked {
        /// The library's file.
        library: String,
    },
    /// `cuInit` failed for another reason.
    Init {
        /// The library's file.
        library: String,
        /// The library's API version, if it said.
        version: Option<i32>,
        /// The driver's answer.
        error: CuError,
    },
}

impl LoadError {
    /// Sorts what `cuInit` answered.
    pub(crate) fn from_init(library: String, version: Option<i32>, error: CuError) -> Self {
        match error.code() {
            // `cuInit` can't be lacking an earlier `cuInit`: this is a child of a process that
            // had called it, be it by other means than this crate.
            CUresult::CUDA_ERROR_NOT_INITIALIZED => Self::Forked { library },
            CUresult::CUDA_ERROR_NO_DEVICE => Self::NoDevice { library, error },
            CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
            | CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => Self::Mismatch {
                library,
                version,
                error,
            },
            CUresult::CUDA_ERROR_NOT_PERMITTED => Self::NotPermitted { library, error },
            CUresult::CUDA_ERROR_STUB_LIBRARY => Self::stub(library),
            _ => Self::Init {
                library,
                version,
                error,
            },
        }
    }

    pub(crate) fn stub(library: String) -> Self {
        Self::Stub {
            attempts: vec![Attempt::stub(library.clone())],
            library,
        }
    }

    /// The driver's answer, where it gave one.
    #[must_use]
    pub fn driver_error(&self) -> Option<CuError> {
        match self {
            Self::NoDevice { error, .. }
            | Self::Mismatch { error, .. }
            | Self::NotPermitted { error, .. }
            | Self::Init { error, .. } => Some(*error),
            _ => None,
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, attempts: &[Attempt]) -> fmt::Result {
    f.write_str(" Tried:")?;
    for attempt in attempts {
        write!(f, "\n  {attempt}")?;
    }
    Ok(())
}

fn name(f: &mut fmt::Formatter<'_>, library: &str, version: Option<i32>) -> fmt::Result {
    match version {
        Some(version) => write!(f, "{library} (CUDA {})", Version(version)),
        None => f.write_str(library),
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { attempts } => {
                write!(
                    f,
                    "no CUDA driver library was found; install NVIDIA's driver, or name the \
                     library in {DRIVER_PATH_VARIABLE}."
                )?;
                list(f, attempts)
            }
            Self::CannotOpen {
                attempt,
                from_environment,
            } => {
                write!(f, "{attempt}; ")?;
                if *from_environment {
                    write!(
                        f,
                        "{DRIVER_PATH_VARIABLE} names it: correct the variable, or unset it to \
                         have the driver searched for"
                    )
                } else {
                    f.write_str("no other library was asked for")
                }
            }
            Self::Stub { library, attempts } => {
                write!(
                    f,
                    "{library} is the CUDA toolkit's stub library, made for linking only; install \
                     NVIDIA's driver, or take the stub's folder off the library search path."
                )?;
                list(f, attempts)
            }
            Self::MissingSymbol {
                library,
                symbol,
                version,
            } => {
                name(f, library, *version)?;
                write!(
                    f,
                    " lacks {}, which CUDA {} and later have: it is no CUDA driver, or not a whole \
                     one; name another in {DRIVER_PATH_VARIABLE}",
                    symbol.name(),
                    Version(symbol.since().cast_signed())
                )
            }
            Self::TooOld { library, version } => write!(
                f,
                "the driver {library} is of CUDA {}, and {} or later is needed: update NVIDIA's \
                 driver",
                Version(*version),
                Version(OLDEST_DRIVER)
            ),
            Self::Mismatch {
                library,
                version,
                error,
            }
            | Self::Init {
                library,
                version,
                error,
            } => {
                name(f, library, *version)?;
                write!(f, ": {error}")
            }
            Self::NoDevice { library, error } | Self::NotPermitted { library, error } => {
                write!(f, "{library}: {error}")
            }
            Self::Forked { library } => write!(
                f,
                "{library} can't be used in this process: it was forked from one that had \
                 initialised CUDA, and the driver does not survive that; start a new process \
                 instead of forking, or use CUDA only in the child"
            ),
        }
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoDevice { error, .. }
            | Self::Mismatch { error, .. }
            | Self::NotPermitted { error, .. }
            | Self::Init { error, .. } => Some(error),
            _ => None,
        }
    }
}
