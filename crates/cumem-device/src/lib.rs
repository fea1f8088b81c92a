//! CUDA device memory that goes back to the driver exactly once.
//!
//! Three kinds, each with a backend type of its own:
//!
//! | kind | memory | the host |
//! | --- | --- | --- |
//! | [`DevicePreferred`] | managed, advised to stay on the device | may touch it in place |
//! | [`Device`] | plain device memory | copies through the driver |
//! | [`StreamOrdered`] | device memory from a driver pool, in stream order | copies through the driver |
//!
//! ```no_run
//! use cumem_device::DevicePreferredBackend;
//!
//! static DEVICE: DevicePreferredBackend = DevicePreferredBackend::new();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let block = DEVICE.allocate(1 << 20, 256)?;
//!     assert_eq!(block.as_ptr().addr() % 256, 0);
//!     Ok(()) // dropped here: the driver has it back
//! }
//! ```

mod device;
mod pool;
mod preferred;
mod stream_ordered;

pub use device::{Device, DeviceBackend};
pub use pool::{MemoryPool, PoolError, PoolStatistics};
pub use preferred::{DevicePreferred, DevicePreferredBackend};
pub use stream_ordered::{StreamOrdered, StreamOrderedBackend};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
