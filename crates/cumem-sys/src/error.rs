//! A driver call that failed.

use core::error::Error;
use core::fmt;

use crate::bindings::CUresult;
use crate::error_names::{error_description, error_name};
use crate::fork;
use crate::table::Symbol;
use crate::version::Version;

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
    /// The driver, of this version (0: unknown), has no such entry point.
    Missing {
        driver: i32,
    },
    Forked,
    /// Device ordinals end before this count.
    NoSuchDevice {
        ordinal: i32,
        count: i32,
    },
}

impl CuError {
    /// What the driver that was made in this generation of forks answered.
    #[cold]
    pub(crate) fn answered(symbol: &'static Symbol, code: CUresult, generation: u32) -> Self {
        let forked =
            code == CUresult::CUDA_ERROR_NOT_INITIALIZED && generation != fork::generation();
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
    pub(crate) fn missing(symbol: &'static Symbol, driver: i32) -> Self {
        Self {
            symbol,
            code: CUresult::CUDA_ERROR_NOT_SUPPORTED,
            cause: Cause::Missing { driver },
        }
    }

    /// The same error, of a device ordinal that is not below the count of devices.
    #[cold]
    pub(crate) fn of_ordinal(self, ordinal: i32, count: i32) -> Self {
        Self {
            cause: Cause::NoSuchDevice { ordinal, count },
            ..self
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
    /// known when this crate was made. ([`Driver::get_error_name`] asks the driver.)
    ///
    /// [`Driver::get_error_name`]: crate::Driver::get_error_name
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        error_name(self.code)
    }

    /// What the code's name says, in words, such as `out of memory`; `None` for a code that was not
    /// known when this crate was made. ([`Driver::get_error_string`] asks the driver.)
    ///
    /// [`Driver::get_error_string`]: crate::Driver::get_error_string
    #[must_use]
    pub fn description(&self) -> Option<&'static str> {
        error_description(self.code)
    }

    /// The entry point, if the driver lacks it: nothing was called then.
    #[must_use]
    pub fn missing_symbol(&self) -> Option<&'static Symbol> {
        matches!(self.cause, Cause::Missing { .. }).then_some(self.symbol)
    }

    /// Whether the call failed because this process is a forked child of the one that the driver was
    /// loaded in.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.cause == Cause::Forked
    }

    /// The device ordinal that was asked for and the number of devices, if there is no such device.
    #[must_use]
    pub fn bad_ordinal(&self) -> Option<(i32, i32)> {
        match self.cause {
            Cause::NoSuchDevice { ordinal, count } => Some((ordinal, count)),
            _ => None,
        }
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
        write!(f, "{}: ", self.call())?;
        if let Cause::Missing { driver } = self.cause {
            return missing(f, self.symbol, driver);
        }
        match (self.name(), self.description()) {
            (Some(name), Some(description)) => {
                write!(f, "{name} ({}): {description}", self.code.0)?;
            }
            _ => write!(
                f,
                "error code {}, which this version of cumem-sys does not know: the driver is newer",
                self.code.0
            )?,
        }
        match (self.cause, self.advice()) {
            (Cause::NoSuchDevice { ordinal, count: 0 }, _) => {
                write!(f, "; there is no device {ordinal}, nor any other")
            }
            (Cause::NoSuchDevice { ordinal, count }, _) => write!(
                f,
                "; there is no device {ordinal}: ordinals run from 0 to {}, and \
                 CUDA_VISIBLE_DEVICES may hide devices",
                count - 1
            ),
            (_, Some(advice)) => write!(f, "; {advice}"),
            (_, None) => Ok(()),
        }
    }
}

/// Tells a driver that is too old from one that should have the symbol.
fn missing(f: &mut fmt::Formatter<'_>, symbol: &Symbol, driver: i32) -> fmt::Result {
    let since = symbol.since().cast_signed();
    f.write_str("not supported by this driver")?;
    match driver {
        0 => write!(f, ", which lacks that symbol of CUDA {}", Version(since)),
        _ if driver < since => write!(
            f,
            ": it is of CUDA {}, and that symbol came with CUDA {}",
            Version(driver),
            Version(since)
        ),
        _ => write!(
            f,
            ": it lacks that symbol of CUDA {}, though it says that it is of CUDA {}",
            Version(since),
            Version(driver)
        ),
    }
}

impl Error for CuError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::SYMBOLS;

    fn symbol(name: &str) -> &'static Symbol {
        SYMBOLS
            .iter()
            .find(|symbol| symbol.name() == name)
            .expect("the table has it")
    }

    fn answered(code: u32) -> CuError {
        CuError::answered(symbol("cuMemAllocManaged"), CUresult(code), 0)
    }

    #[test]
    fn an_error_reads_as_call_name_code_words() {
        assert!(
            answered(2)
                .to_string()
                .starts_with("cuMemAllocManaged: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; ")
        );
        assert_eq!(
            answered(400).to_string(),
            "cuMemAllocManaged: CUDA_ERROR_INVALID_HANDLE (400): invalid handle"
        );
    }

    #[test]
    fn a_code_of_a_newer_driver_passes_unharmed_and_is_readable() {
        for code in [4242, u32::MAX] {
            let error = answered(code);
            assert_eq!(error.code(), CUresult(code));
            assert_eq!(error.name(), None);
            assert_eq!(error.description(), None);
            let text = error.to_string();
            assert!(text.starts_with(&format!("cuMemAllocManaged: error code {code},")));
            assert!(text.contains("newer"));
        }
    }

    #[test]
    fn a_missing_symbol_is_told_from_a_driver_that_is_too_old() {
        let symbol = symbol("cuMemAdvise_v2");
        assert_eq!(
            CuError::missing(symbol, 11040).to_string(),
            "cuMemAdvise_v2: not supported by this driver: it is of CUDA 11.4, and that symbol came \
             with CUDA 12.2"
        );
        assert_eq!(
            CuError::missing(symbol, 13000).to_string(),
            "cuMemAdvise_v2: not supported by this driver: it lacks that symbol of CUDA 12.2, though \
             it says that it is of CUDA 13.0"
        );
    }

    #[test]
    fn an_error_is_small_enough_to_travel_by_value() {
        assert!(size_of::<CuError>() <= 24);
    }
}
