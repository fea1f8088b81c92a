//! What can go wrong with a virtual buffer.

use core::error::Error;
use core::fmt;

use cumem_sys::{CuError, LoadError};

/// Why a virtual buffer could not be made, grown, shrunk, or opened to a device. It is as it was
/// before the call, unless the variant says otherwise.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum VirtualError {
    /// There is no usable driver.
    Driver(&'static LoadError),
    /// The size is zero, or too large to be rounded up to whole granules.
    Size {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The reservation is smaller than that.
    BeyondReservation {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes of addresses that are reserved.
        reserved: usize,
    },
    /// The driver refused.
    Refused {
        /// The device's ordinal.
        device: i32,
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes that have memory behind them.
        mapped: usize,
        /// The driver's answer.
        error: CuError,
    },
    /// The driver refused to take a mapping away: the buffer has more memory than was asked for.
    Stuck {
        /// The device's ordinal.
        device: i32,
        /// Bytes that still have memory behind them.
        mapped: usize,
        /// The driver's answer.
        error: CuError,
    },
}

impl fmt::Display for VirtualError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => write!(f, "no usable CUDA driver: {error}"),
            Self::Size { bytes } => write!(f, "a virtual buffer can't have {bytes} bytes"),
            Self::BeyondReservation { bytes, reserved } => write!(
                f,
                "{bytes} bytes are more than the {reserved} that are reserved; reserve more \
                 addresses, which cost no memory"
            ),
            Self::Refused {
                device,
                bytes,
                mapped,
                error,
            } => write!(
                f,
                "device {device} did not give {bytes} bytes ({mapped} are mapped): {error}"
            ),
            Self::Stuck {
                device,
                mapped,
                error,
            } => write!(
                f,
                "device {device} did not take memory back, {mapped} bytes stay mapped: {error}"
            ),
        }
    }
}

impl Error for VirtualError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Driver(error) => Some(*error),
            Self::Refused { error, .. } | Self::Stuck { error, .. } => Some(error),
            _ => None,
        }
    }
}
