//! Allocates and releases one block again and again, for an instruction counter:
//! `valgrind --tool=callgrind pairs SIZE COUNT`.

use std::error::Error;

use cumem_backend::MemoryBackend;
use cumem_device::DeviceBackend;
use cumem_pool::{Pool, PoolConfig};
use cumem_sim::Sim;

fn main() -> Result<(), Box<dyn Error>> {
    let number = |position| -> Result<Option<usize>, std::num::ParseIntError> {
        std::env::args()
            .nth(position)
            .map(|text| text.parse())
            .transpose()
    };
    let size = number(1)?.unwrap_or(4096);
    let count = number(2)?.unwrap_or(1000);
    let sim = Sim::builder().memory_per_device(1 << 30).build();
    let backend = Box::new(DeviceBackend::new().with_driver(sim.driver()?));
    let pool = Pool::new(backend, PoolConfig::new(256 << 20));
    pairs(&pool, size, count)?;
    println!("{count} pairs of {size} bytes");
    Ok(())
}

#[inline(never)]
fn pairs(pool: &impl MemoryBackend, size: usize, count: usize) -> Result<(), Box<dyn Error>> {
    for _ in 0..count {
        let block = pool.acquire(size, 256, std::panic::Location::caller())?;
        // SAFETY: nothing has used the block.
        unsafe { pool.release(std::hint::black_box(block)) }?;
    }
    Ok(())
}
