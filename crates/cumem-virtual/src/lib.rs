//! CUDA device memory that grows and shrinks without moving.
//!
//! A [`VirtualBuffer`] reserves a range of addresses once, and puts physical memory behind as much
//! of it as is wanted, in granules (CUDA Driver API, Virtual Memory Management). Pointers into it
//! stay valid as it grows: no copy, and no second buffer beside the first.
//!
//! ```no_run
//! use cumem_virtual::VirtualBuffer;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut buffer = VirtualBuffer::reserve(0, 64 << 30)?; // addresses only
//!     let start = buffer.device_ptr();
//!     buffer.grow_to(10 << 20)?; // now with memory
//!     buffer.grow_to(1 << 30)?;
//!     assert_eq!(buffer.device_ptr(), start);
//!     // SAFETY: no work on the device uses the buffer.
//!     unsafe { buffer.shrink_to(4 << 20) }?;
//!     Ok(())
//! }
//! ```

mod buffer;
mod error;

pub use buffer::VirtualBuffer;
pub use error::VirtualError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
