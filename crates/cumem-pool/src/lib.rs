//! A bounded caching allocator above any kind of CUDA memory.
//!
//! Asking a driver for memory costs 3 microseconds to 30 milliseconds. A [`Pool`] asks it for large
//! segments, through a backend that records every one of them, and hands out blocks of these:
//!
//! ```
//! use cumem_device::DeviceBackend;
//! use cumem_pool::{Pool, PoolConfig};
//! # use cumem_sim::Sim;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let sim = Sim::builder().build();
//! # let backend = Box::new(DeviceBackend::new().with_driver(sim.driver()?));
//! # /*
//! let backend = Box::new(DeviceBackend::new());
//! # */
//! let pool = Pool::new(backend, PoolConfig::new(1 << 30));
//! let block = pool.allocate(1 << 20, 256)?;
//! let address = block.device_ptr();
//! drop(block);
//! assert_eq!(pool.allocate(1 << 20, 256)?.device_ptr(), address);
//! # Ok(())
//! # }
//! ```
//!
//! [`OrderedPool`] adds stream order: a block released on a stream is reused on that stream at once,
//! and elsewhere when the stream has passed that point.
//!
//! # How it works
//! All bookkeeping lies in host memory, outside the blocks, and is allocated when the pool is made.
//!
//! - **Granules.** Memory is counted in granules of 512 bytes, and each has one byte that says
//!   what starts there: nothing, or a block that is live, cached, pending on a stream, or free.
//!   Whoever wins the atomic change of that byte has the block. That is the whole protocol between
//!   threads: one uncontended compare-and-swap to take a block, one to release it.
//! - **Hints.** Each thread keeps, for each of 80 size classes, a short stack of cached blocks'
//!   numbers. These are hints: the byte decides. So under pressure any thread can gather what
//!   idle threads have cached, without their help; they notice when a hint of theirs fails.
//! - **The depot.** A thread whose stack is full leaves half of it in a bundle on a lock-free
//!   stack that all threads share, and one whose stack is empty takes a bundle from there. So
//!   blocks that one thread allocates and another releases flow back, 32 or fewer at a time.
//! - **Spans and ranges.** Below that, one lock guards segments cut into ranges of 64 KiB pages,
//!   found by two-level bins and merged when free. A class's span is a range cut into equal
//!   blocks; a block above 2 MiB is a range of its own.
//! - **Addresses.** A release finds the granule by a lock-free hash table from 2 MiB chunks of the
//!   address space. So a foreign address, an interior one and a second release are each refused, in
//!   every build.
//!
//! # When memory runs out
//! Before it grows, the pool gathers cached blocks, if they are an eighth of it or more. If it may
//! not grow, or the backend refuses, it gathers everything, gives empty segments back, and tries
//! once more. Then [`PoolExhausted`](cumem_backend::AllocFailure::PoolExhausted) says what is where.
//!
//! # Limits
//! - A block has the size of its class: up to an eighth more than was asked for, above 4 KiB; a
//!   multiple of 64 KiB above 2 MiB; at least 512 bytes.
//! - Blocks above 2 MiB take the lock.
//! - A second release is refused as long as the block is not somebody else's by then: a pointer
//!   that was released, and handed out again, is live. The same holds for a pointer into a segment
//!   that was given back, if new memory lies at its address.
//! - The bookkeeping's address space is proportional to the limit: 4 MiB for each GiB, of
//!   which what was never used is never committed on systems that commit
//!   memory on first use. An `OrderedPool` adds 36 MiB for each GiB.
//! - Blocks below 2 KiB that different threads have may share a cache line of states.
//! - A forked child must not use its parent's pool: blocks at hand are handed out without asking
//!   the driver, which is dead there.
//! - Threads beyond [`PoolConfig::threads`] share one cache behind a lock.

mod addresses;
mod blocks;
mod cache;
mod class;
mod config;
mod depot;
#[cfg(feature = "allocator-api2")]
mod host;
#[cfg(all(test, cumem_pool_loom))]
mod models;
mod order;
mod ordered;
mod pages;
mod pool;
mod queue;
mod records;
mod shared;
mod spans;
mod statistics;
mod sync;
mod thread;

pub use config::{MAX_POOL_BYTES, PoolConfig};
#[cfg(feature = "allocator-api2")]
pub use host::HostAllocator;
pub use order::{DriverStreams, Event, StreamOrder};
pub use ordered::{OrderedPool, ReleaseOnError};
pub use pool::Pool;
pub use statistics::{ClassStatistics, PoolStatistics};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
