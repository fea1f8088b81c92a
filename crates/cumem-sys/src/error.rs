//! A driver call that failed.

use core::error::Error;
use core::fmt;

use crate::bindings::CUresult;
use crate::error_names::error_name;
use crate::fork;
use crate::table::Symbol;

/// A driver call that failed: which call, with which code.
///
/// Small, `Copy`, and made without the heap, so it can travel through an allocator. A code that
/// this crate doesn't know (from a newer driver) is kept as it is.
#[derive(Clone, Copy)]
pub struct CuError {
    symbol: &'static Symbol,
    code: CUresult,
    cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Answered,
    Missing,
    Forked,
}

impl CuError {
    #[cold]
    pub(crate) fn answered(symbol: &'static Symbol, code: CUresult) -> Self {
        let forked = code == CUresult::CUDA_ERROR_NOT_INITIALIZED && fork::in_forked_child();
        Self {
            symbol,
            code,
            cause: if forked {
                Cause::Forked
            } else {
                Cause::Answered
            },
        }
    }

    #[cold]
    pub(crate) fn missing(symbol: &'static Symbol) -> Self {
        Self {
            symbol,
            code: CUresult::CUDA_ERROR_NOT_SUPPORTED,
            cause: Cause::Missing,
        }
    }

    /// The driver's code. For an entry point that the driver lacks: `CUDA_ERROR_NOT_SUPPORTED`.
    #[must_use]
    pub fn code(&self) -> CUresult {
        self.code
    }

    /// The exact name of the entry point, such as `cuMemFree_v2`.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.symbol.name()
    }

    /// The code's C name, such as `CUDA_ERROR_OUT_OF_MEMORY`; `None` for a code that was not
    /// known when this crate was made.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        error_name(self.code)
    }

    /// The entry point, if the driver lacks it: nothing was called then.
    #[must_use]
    pub fn missing_symbol(&self) -> Option<&'static Symbol> {
        (self.cause == Cause::Missing).then_some(self.symbol)
    }

    /// Whether the call failed because this process is a forked child of one that had initialised
    /// the driver.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.cause == Cause::Forked
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        if self.is_forked() {
            return Some(
                "this process was forked from one that had initialised CUDA; use CUDA only in the \
                 parent, or start a new process instead of forking",
            );
        }
        advice(self.code)
    }
}

/// What to do about a code, where there is something to say beyond its name.
fn advice(code: CUresult) -> Option<&'static str> {
    Some(match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            "the memory that this call takes from is exhausted; release some, or ask for less"
        }
        CUresult::CUDA_ERROR_NOT_INITIALIZED => "cuInit has not run in this process",
        CUresult::CUDA_ERROR_DEINITIALIZED => "the driver is shutting down with the process",
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "this is the CUDA toolkit's stub library, made for linking only; put the real driver \
             library first"
        }
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "the driver sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES"
        }
        CUresult::CUDA_ERROR_INVALID_DEVICE => {
            "ordinals run from 0 to the device count less one; CUDA_VISIBLE_DEVICES may hide some"
        }
        CUresult::CUDA_ERROR_INVALID_CONTEXT => "no usable context is current on this thread",
        CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => {
            "part of this range is page-locked already, perhaps by another library"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "the system is not ready; on NVSwitch systems the fabric manager must run"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver library does not match the kernel's driver; an old library may be first \
             on the search path, or a reboot is due after an update"
        }
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "this compatibility library does not support the device; take its folder off the \
             library search path"
        }
        CUresult::CUDA_ERROR_NOT_PERMITTED => {
            "the system forbids this; check the permissions of /dev/nvidia* and the container's \
             settings"
        }
        CUresult::CUDA_ERROR_OPERATING_SYSTEM => {
            "an operating system call failed; check the permissions of /dev/nvidia* and limits on \
             locked memory"
        }
        _ => return None,
    })
}

impl PartialEq for CuError {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.symbol, other.symbol)
            && self.code == other.code
            && self.cause == other.cause
    }
}

impl Eq for CuError {}

impl fmt::Debug for CuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(symbol) = self.missing_symbol() {
            let since = symbol.since();
            return write!(
                f,
                "{}: not supported by this driver, which lacks that symbol (CUDA {}.{} has it)",
                symbol.name(),
                since / 1000,
                since % 1000 / 10
            );
        }
        let name = self.name().unwrap_or("an error code unknown to cumem");
        write!(f, "{}: {name} ({})", self.call(), self.code.0)?;
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

impl Error for CuError {}
