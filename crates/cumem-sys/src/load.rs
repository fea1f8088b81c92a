//! Finding the driver's library, and everything that can be wrong with it.

use core::error::Error;
use core::ffi::{CStr, c_void};
use core::fmt;
use std::path::{Path, PathBuf};

use crate::bindings::CUresult;
use crate::error::CuError;
use crate::table::Symbol;

/// The environment variable that names the one library to load.
pub const DRIVER_PATH_VARIABLE: &str = "CUMEM_DRIVER_PATH";

/// The oldest driver API that this crate works with, as the driver counts: CUDA 11.0.
pub const OLDEST_DRIVER: i32 = 11000;

/// A library that was tried, and what came of it.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub(crate) candidate: String,
    pub(crate) message: String,
    pub(crate) stub: bool,
}

impl Attempt {
    /// What was asked of the dynamic loader: a file name or a path.
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

/// Why there is no usable driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    NotFound {
        /// Everything that was tried, in order.
        attempts: Vec<Attempt>,
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
        /// What it lacks.
        symbol: &'static Symbol,
    },
    /// The driver is older than this crate works with.
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
        /// The driver's answer.
        error: CuError,
    },
}

impl LoadError {
    /// Sorts what `cuInit` answered.
    pub(crate) fn from_init(library: String, version: Option<i32>, error: CuError) -> Self {
        if error.is_forked() {
            return Self::Forked { library };
        }
        match error.code() {
            CUresult::CUDA_ERROR_NO_DEVICE => Self::NoDevice { library, error },
            CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
            | CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => Self::Mismatch {
                library,
                version,
                error,
            },
            CUresult::CUDA_ERROR_NOT_PERMITTED => Self::NotPermitted { library, error },
            CUresult::CUDA_ERROR_STUB_LIBRARY => Self::Stub {
                attempts: vec![stub_attempt(library.clone())],
                library,
            },
            _ => Self::Init { library, error },
        }
    }
}

fn stub_attempt(candidate: String) -> Attempt {
    Attempt {
        candidate,
        message: "the CUDA toolkit's stub library (CUDA_ERROR_STUB_LIBRARY)".to_owned(),
        stub: true,
    }
}

/// Shows a version as people write it.
pub(crate) struct Version(pub(crate) i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

fn list(f: &mut fmt::Formatter<'_>, attempts: &[Attempt]) -> fmt::Result {
    for attempt in attempts {
        write!(f, "\n  {}: {}", attempt.candidate, attempt.message)?;
    }
    Ok(())
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { attempts } => {
                write!(
                    f,
                    "no CUDA driver library was found; install NVIDIA's driver, or name the \
                     library in {DRIVER_PATH_VARIABLE}. Tried:"
                )?;
                list(f, attempts)
            }
            Self::Stub { library, attempts } => {
                write!(
                    f,
                    "{library} is the CUDA toolkit's stub library, made for linking only; install \
                     NVIDIA's driver, or take the stub's folder off the library search path. \
                     Tried:"
                )?;
                list(f, attempts)
            }
            Self::MissingSymbol { library, symbol } => write!(
                f,
                "{library} lacks {}, which CUDA {} and later have; it is no CUDA driver, or one \
                 that is too old",
                symbol.name(),
                Version(symbol.since() as i32)
            ),
            Self::TooOld { library, version } => write!(
                f,
                "the driver {library} is of CUDA {}; cumem needs {} or later: update NVIDIA's \
                 driver",
                Version(*version),
                Version(OLDEST_DRIVER)
            ),
            Self::NoDevice { library, error } => write!(f, "{library}: {error}"),
            Self::Mismatch {
                library,
                version,
                error,
            } => {
                write!(f, "{library}")?;
                if let Some(version) = version {
                    write!(f, " (CUDA {})", Version(*version))?;
                }
                write!(f, ": {error}")
            }
            Self::NotPermitted { library, error } | Self::Init { library, error } => {
                write!(f, "{library}: {error}")
            }
            Self::Forked { library } => write!(
                f,
                "{library} can't be used in a process that was forked from one that had \
                 initialised CUDA; start a new process instead of forking, or use CUDA only in \
                 the child"
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

/// An opened library, which is never closed: other parts of the process may be using it, and the
/// driver doesn't survive being unloaded.
pub(crate) struct Library {
    /// The file, as far as the loader tells; else what was asked for.
    pub(crate) file: String,
    handle: Handle,
}

cfg_if::cfg_if! {
    if #[cfg(windows)] {
        type Handle = libloading::os::windows::Library;
    } else {
        type Handle = libloading::os::unix::Library;
    }
}

/// One thing to ask the dynamic loader for.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    name: PathBuf,
    /// Take it only if the process has it open already.
    only_if_loaded: bool,
}

impl Candidate {
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            name: path.to_path_buf(),
            only_if_loaded: false,
        }
    }

    /// What is tried when nobody named a library, in order.
    pub(crate) fn defaults() -> Vec<Self> {
        cfg_if::cfg_if! {
            if #[cfg(windows)] {
                let names: &[(&str, bool)] = &[("nvcuda.dll", false)];
            } else {
                // WSL keeps the library outside the loader's path, and has no bare libcuda.so; a
                // bare libcuda.so elsewhere is most often the toolkit's stub, so it comes last.
                let names: &[(&str, bool)] = &[
                    ("libcuda.so.1", true),
                    ("libcuda.so.1", false),
                    ("/usr/lib/wsl/lib/libcuda.so.1", false),
                    ("libcuda.so", false),
                ];
            }
        }
        names
            .iter()
            .map(|&(name, only_if_loaded)| Self {
                name: name.into(),
                only_if_loaded,
            })
            .collect()
    }

    pub(crate) fn describe(&self) -> String {
        let name = self.name.display();
        if self.only_if_loaded {
            format!("{name}, already loaded")
        } else {
            name.to_string()
        }
    }

    /// Asks the loader.
    pub(crate) fn open(&self) -> Result<Library, Attempt> {
        match self.open_handle() {
            Ok(handle) => {
                let file = file_of(&handle).unwrap_or_else(|| self.name.display().to_string());
                Ok(Library { file, handle })
            }
            Err(error) => Err(Attempt {
                candidate: self.describe(),
                message: deepest_message(&error),
                stub: false,
            }),
        }
    }

    cfg_if::cfg_if! {
        if #[cfg(windows)] {
            fn open_handle(&self) -> Result<Handle, libloading::Error> {
                // SAFETY: NVIDIA's library may be initialised and used from any thread. The name
                // without a folder is looked for in the system's folder by the loader's rules.
                unsafe { Handle::new(&self.name) }
            }
        } else {
            fn open_handle(&self) -> Result<Handle, libloading::Error> {
                use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};
                let only_loaded = if self.only_if_loaded { libc::RTLD_NOLOAD } else { 0 };
                // SAFETY: the library's initialisers are NVIDIA's, or those of the file that the
                // user named; they may run on any thread.
                unsafe { Handle::open(Some(&self.name), RTLD_NOW | RTLD_LOCAL | only_loaded) }
            }
        }
    }
}

impl Library {
    pub(crate) fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the symbol is only looked up; the address is called with the signature of the
        // table, which is checked against the header's declaration.
        let found = unsafe { self.handle.get::<*mut c_void>(name.to_bytes_with_nul()) };
        cfg_if::cfg_if! {
            if #[cfg(windows)] {
                found.map_or(core::ptr::null_mut(), |symbol| symbol.as_raw() as *mut c_void)
            } else {
                found.map_or(core::ptr::null_mut(), |symbol| symbol.as_raw_ptr())
            }
        }
    }

    /// Leaves the library open for good.
    pub(crate) fn keep(self) -> String {
        core::mem::forget(self.handle);
        self.file
    }
}

cfg_if::cfg_if! {
    if #[cfg(windows)] {
        fn file_of(_: &Handle) -> Option<String> {
            None
        }
    } else {
        /// The file that a library was loaded from: the one that holds its `cuInit`.
        fn file_of(handle: &Handle) -> Option<String> {
            // SAFETY: the symbol's address is only looked at.
            let symbol = unsafe { handle.get::<*mut c_void>(b"cuInit\0") }.ok()?;
            let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
            // SAFETY: `dladdr` reads the address as a number and fills `info` when it answers
            // other than 0.
            if unsafe { libc::dladdr(symbol.as_raw_ptr(), info.as_mut_ptr()) } == 0 {
                return None;
            }
            // SAFETY: it answered other than 0.
            let info = unsafe { info.assume_init() };
            // SAFETY: a file name of `dladdr` is a C string that lives as long as the library,
            // which is open.
            let name = unsafe { CStr::from_ptr(info.dli_fname) };
            Some(name.to_string_lossy().into_owned())
        }
    }
}

/// The loader's own words, without what libloading puts around them.
fn deepest_message(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
