//! A bounded caching allocator above any kind of CUDA memory.

mod addresses;
mod blocks;
mod cache;
mod class;
mod config;
mod depot;
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
pub use order::{DriverStreams, Event, StreamOrder};
pub use ordered::{OrderedPool, ReleaseOnError};
pub use pool::Pool;
pub use statistics::{ClassStatistics, PoolStatistics};
