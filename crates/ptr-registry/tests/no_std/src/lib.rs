//! Uses the registry without std. If anything below it needed std, this panic handler would be the
//! second one, and the build would fail.
#![no_std]

use core::panic::PanicInfo;
use core::ptr::NonNull;

use ptr_registry::{Registry, buckets_for};

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

static LIVE: Registry<{ buckets_for(64) }, (usize, &'static Name)> = Registry::with_capacity(64);

/// A value that is a pointer.
type Name = [u8; 8];

/// Every operation once, so that all of it is compiled.
#[unsafe(no_mangle)]
pub extern "C" fn use_everything(ptr: NonNull<u8>) -> usize {
    let known = LIVE.contains(ptr) || LIVE.get(ptr).is_some() || !LIVE.has_room();
    if !known && LIVE.register(ptr, (1, b"a region")).is_err() {
        return 0;
    }
    if let Some(claim) = LIVE.claim(ptr) {
        claim.restore_with((2, b"a region"));
    }
    let sum: usize = LIVE.iter().map(|(_, (n, _))| n).sum();
    LIVE.unregister(ptr);
    sum + LIVE.drain().count() + LIVE.len() + LIVE.capacity()
}
