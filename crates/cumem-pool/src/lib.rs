//! A bounded caching allocator above any kind of CUDA memory.

mod addresses;
mod blocks;
mod cache;
mod class;
mod config;
mod depot;
mod pages;
mod pool;
mod records;
mod shared;
mod spans;
mod statistics;
mod sync;
mod thread;

pub use config::{MAX_POOL_BYTES, PoolConfig};
pub use pool::Pool;
pub use statistics::{ClassStatistics, PoolStatistics};
