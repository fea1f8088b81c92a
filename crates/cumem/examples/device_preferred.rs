//! Device-preferred memory: it lies on the device, and the host can write a few bytes of it in place.
//!
//! ```text
//! cargo run -p cumem --example device_preferred
//! ```

use cumem::{Buffer, DevicePreferredBackend, MemoryBackend};

mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = DevicePreferredBackend::new().with_driver(support::driver()?);
    // An allocator keeps the head of its list of free blocks in the memory that it hands to kernels.
    let mut heap = Buffer::<u64, _>::zeroed(1 << 17, &backend)?;
    heap.slice_mut(..2).copy_from_slice(&[1 << 20, 16])?;
    println!(
        "a heap of {:?} bytes, the first free at {:?}",
        heap.slice(..1).to_vec()?,
        heap.slice(1..2).to_vec()?
    );
    let refused = backend.statistics().advice_refused;
    println!("the driver refused the advice {refused} times");
    Ok(())
}
