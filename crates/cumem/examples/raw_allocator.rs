//! A backend under an allocator: pages come from the raw entry points, blocks are carved from pages.
//!
//! ```text
//! cargo run -p cumem --example raw_allocator
//! ```

use std::cell::RefCell;

use cumem::{DevicePreferredBackend, MemoryBackend};

mod support;

const PAGE: usize = 2 << 20;

/// Hands out blocks one after the other, and takes all of them back at once. The raw entry points
/// answer null and `false` instead of errors, and neither panic nor allocate.
struct Bump<'a> {
    backend: &'a DevicePreferredBackend,
    pages: RefCell<Vec<*mut u8>>,
    used: RefCell<usize>,
}

impl<'a> Bump<'a> {
    fn new(backend: &'a DevicePreferredBackend) -> Self {
        Self {
            backend,
            pages: RefCell::default(),
            used: RefCell::new(PAGE),
        }
    }

    fn allocate(&self, size: usize) -> Option<*mut u8> {
        let size = size.checked_next_multiple_of(256)?;
        if size > PAGE {
            return None;
        }
        let mut used = self.used.borrow_mut();
        if PAGE - *used < size {
            let page = self.backend.allocate_raw(PAGE);
            if page.is_null() {
                return None;
            }
            self.pages.borrow_mut().push(page);
            *used = 0;
        }
        let block = self.pages.borrow().last()?.wrapping_add(*used);
        *used += size;
        Some(block)
    }
}

impl Drop for Bump<'_> {
    fn drop(&mut self) {
        for page in self.pages.take() {
            // SAFETY: the blocks in the page went to nobody who still uses them.
            let released = unsafe { self.backend.release_raw(page) };
            assert!(released, "the backend gave the page out");
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = DevicePreferredBackend::new().with_driver(support::driver()?);
    let bump = Bump::new(&backend);
    let blocks: Vec<_> = (0..10_000)
        .map_while(|n| bump.allocate(n % 4000 + 1))
        .collect();
    println!(
        "{} blocks in {} pages",
        blocks.len(),
        backend.statistics().live
    );
    drop(bump);
    println!("{} pages are live", backend.statistics().live);
    Ok(())
}
