//! Stream-ordered memory from a pool: allocated and released among the work of a stream.
//!
//! ```text
//! cargo run -p cumem --example stream_ordered
//! ```

use std::sync::Arc;

use cumem::{Buffer, MemoryPool, Stream, StreamOrderedBackend};

mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = support::driver()?;
    let pool = MemoryPool::default_with(&driver, 0)?;
    // Without a threshold, the pool gives everything back whenever the host waits for the device.
    pool.set_release_threshold(64 << 20)?;
    let backend = Arc::new(StreamOrderedBackend::new().with_driver(driver.clone()));
    let stream = Stream::new(&driver, 0)?;
    for round in 0..4_u32 {
        let buffer = Buffer::<u32, _>::zeroed(1 << 20, Arc::clone(&backend))?;
        let up = stream.upload(vec![round; 1 << 20], buffer)?;
        let (values, buffer) = up.wait()?;
        let (_, values) = stream.download(buffer, values)?.wait()?;
        println!("round {round}: {:?}", &values[..4]);
    }
    println!("the pool: {:?}", pool.statistics()?);
    Ok(())
}
