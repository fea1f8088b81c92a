//! Unified memory: one address for the host and every device, and advice where its pages should be.
//!
//! ```text
//! cargo run -p cumem --example unified
//! ```

use cumem::sys::CUmemLocation;
use cumem::{Allocation, Buffer, ManagedRange, UnifiedBackend};

mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = support::driver()?;
    let backend = UnifiedBackend::new().with_driver(driver.clone());

    let mut numbers = Buffer::from_iter((1..=1000_u64).rev(), &backend)?;
    match numbers.as_mut_slice() {
        Ok(slice) => slice.sort_unstable(),
        // Windows, WSL and Tegra: the host may touch it only while no kernel runs. None does.
        Err(error) => {
            println!("{error}");
            // SAFETY: this program runs no kernels.
            unsafe { numbers.as_mut_slice_unchecked() }.sort_unstable();
        }
    }
    println!(
        "from {:?} to {:?}",
        numbers.slice(..3).to_vec()?,
        numbers.slice(997..).to_vec()?
    );

    let block = Allocation::new_in(&backend, 1 << 20, 256)?;
    let range = ManagedRange::of(&driver, &block)?;
    match range.set_preferred_location(Some(CUmemLocation::device(0))) {
        Ok(()) => println!("the pages should lie at {:?}", range.preferred_location()?),
        Err(error) => println!("no advice: {error}"),
    }
    Ok(())
}
