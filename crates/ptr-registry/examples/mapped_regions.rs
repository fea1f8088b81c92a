//! Live memory-mapped regions in a `static`: nothing is unmapped that isn't ours, nothing twice,
//! and a refused unmapping loses nothing.
//!
//! ```console
//! $ cargo run -p ptr-registry --example mapped_regions
//! ```

use std::io;
use std::panic::Location;
use std::ptr::{NonNull, null_mut};

use ptr_registry::{RegisterError, Registry, buckets_for};

/// Length in bytes, and who mapped it.
type Region = (usize, &'static Location<'static>);

/// At most 64 regions at a time.
static REGIONS: Registry<{ buckets_for(64) }, Region> = Registry::with_capacity(64);

/// Maps `length` bytes of zeros.
#[track_caller]
fn map(length: usize) -> io::Result<NonNull<u8>> {
    // A full table refuses before the kernel is asked.
    if !REGIONS.has_room() {
        return Err(io::Error::other("64 regions are mapped already"));
    }
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no other memory.
    let address = unsafe {
        libc::mmap(
            null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let Some(region) = NonNull::new(address.cast::<u8>()) else {
        return Err(io::Error::other("a region at address 0"));
    };
    match REGIONS.register(region, (length, Location::caller())) {
        Ok(()) => Ok(region),
        // MAP_FAILED is the one address that a registry refuses.
        Err(RegisterError::Reserved) => Err(io::Error::last_os_error()),
        Err(error) => {
            // Another thread took the last slot meanwhile.
            // SAFETY: it was mapped above, with this length, and nobody else knows it.
            unsafe { libc::munmap(address, length) };
            Err(io::Error::other(error))
        }
    }
}

/// Unmaps a region; `false` if it isn't one of ours, or is gone already.
fn unmap(region: NonNull<u8>) -> io::Result<bool> {
    // From here on nobody else finds it. If unmapping fails or panics, dropping the claim puts it
    // back.
    let Some(claim) = REGIONS.claim(region) else {
        return Ok(false);
    };
    let (length, _) = claim.value();
    // SAFETY: the claim is ours alone, and the registry holds only regions that `map` made.
    if unsafe { libc::munmap(claim.ptr().as_ptr().cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    claim.remove();
    Ok(true)
}

fn main() -> io::Result<()> {
    let first = map(1 << 20)?;
    let second = map(4096)?;
    // SAFETY: the region is mapped and at least a page long.
    unsafe { first.as_ptr().write(1) };

    assert!(unmap(first)?, "ours");
    assert!(!unmap(first)?, "gone");
    assert!(!unmap(NonNull::dangling())?, "never ours");

    for (region, (length, caller)) in &REGIONS {
        println!("still mapped: {region:p}, {length} bytes, mapped at {caller}");
    }
    assert!(unmap(second)?);
    println!("{} regions left", REGIONS.len());
    Ok(())
}
