//! A backend as a `static`, shared by all threads, with a policy around it and a report of leaks.
//!
//! ```text
//! cargo run -p cumem --example static_backend
//! ```

use cumem::policy::ByteLimit;
use cumem::{Buffer, UnifiedBackend, buckets_for};

mod support;

/// 100 pointers on device 0; no registration, no initialisation, no lock.
static SMALL: UnifiedBackend<{ buckets_for(100) }> = UnifiedBackend::with_capacity(100);

/// The same, and never more than a mebibyte.
static LIMITED: ByteLimit<&UnifiedBackend<{ buckets_for(100) }>> = ByteLimit::new(&SMALL, 1 << 20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Only so that this runs without a GPU: a `static` finds the machine's driver by itself.
    SMALL
        .set_driver(support::driver()?)
        .map_err(|_| "the backend was used before")?;
    cumem::register_backend(&LIMITED)?;
    cumem::report_leaks_at_exit();

    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            scope.spawn(
                move || match Buffer::from_iter(0..100 * (thread + 1), &LIMITED) {
                    Ok(buffer) => println!("thread {thread}: {} numbers", buffer.len()),
                    Err(error) => println!("thread {thread}: {error}"),
                },
            );
        }
    });
    let error = Buffer::<u8, _>::zeroed(2 << 20, &LIMITED).expect_err("that is beyond the limit");
    println!("{:?}: {error}", error.kind());

    // A pointer that nobody released: found by its address alone.
    let (ptr, ..) = Buffer::<u8, _>::zeroed(1000, &LIMITED)?.into_raw();
    if let Some(owner) = cumem::owner_of(ptr) {
        println!(
            "{} bytes of {} memory from {}",
            owner.size, owner.kind, owner.site
        );
    }
    if std::env::args().any(|argument| argument == "--leak") {
        return Ok(()); // and so it is reported at exit
    }
    // SAFETY: nothing uses the memory, and no buffer owns it any more.
    unsafe { cumem::release(ptr) }?;
    Ok(())
}
