//! Why a pointer was not registered.

use core::error::Error;
use core::fmt;

/// Why [`Registry::register`](crate::Registry::register) did not take a pointer.
///
/// Nothing was stored, and nothing has to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegisterError {
    /// Every slot was seen taken at some moment of the call (not necessarily all at the same one).
    Full {
        /// How many pointers the registry can hold.
        capacity: usize,
    },
    /// The address is `usize::MAX`, which the registry keeps for itself. No allocation contains
    /// that byte, but `MAP_FAILED` and `INVALID_HANDLE_VALUE` have that value.
    Reserved,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { capacity } => {
                write!(
                    f,
                    "the registry is full: it holds {capacity} pointers at most"
                )
            }
            Self::Reserved => {
                f.write_str("the address usize::MAX is not the address of any allocation")
            }
        }
    }
}

impl Error for RegisterError {}
