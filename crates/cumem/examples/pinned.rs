//! Pinned memory: a slice for the host, and copies beside its work.
//!
//! ```text
//! cargo run -p cumem --example pinned
//! ```

use std::sync::Arc;

use cumem::{Buffer, DeviceBackend, PinnedBackend, Stream};

mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = support::driver()?;
    let host = Arc::new(PinnedBackend::new().with_driver(driver.clone()));
    let device = Arc::new(DeviceBackend::new().with_driver(driver.clone()));
    let stream = Stream::new(&driver, 0)?;

    // Two buffers take turns: while one is copied, the host fills the other.
    let mut filling = Buffer::<u32, _>::zeroed(1 << 16, Arc::clone(&host))?;
    let mut resting = Buffer::<u32, _>::zeroed(1 << 16, host)?;
    let mut place = Buffer::<u32, _>::zeroed(1 << 16, device)?;
    for round in 0..4 {
        filling.fill(round);
        let copying = stream.copy(filling, place)?;
        resting.fill(round + 1); // beside the copy
        (filling, place) = copying.wait()?;
        std::mem::swap(&mut filling, &mut resting);
        println!(
            "round {round}: the device has {:?}",
            place.slice(..4).to_vec()?
        );
    }
    Ok(())
}
