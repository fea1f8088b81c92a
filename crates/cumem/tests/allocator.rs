//! Collections in memory of a backend.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use cumem::policy::ByteLimit;
use cumem::{
    Backend, Device, ErrorKind, HostAllocator, MemoryBackend, Pinned, Unified, buckets_for,
};
use cumem_sim::{Sim, TestDriver};

type Small<K> = Backend<K, { buckets_for(64) }>;

fn test_driver() -> TestDriver {
    TestDriver::new(Sim::builder()).unwrap()
}

#[test]
fn vectors_boxes_and_maps_live_in_pinned_memory() {
    let test = test_driver();
    let backend = Arc::new(Small::<Pinned>::with_capacity(64).with_driver(test.driver.clone()));
    let allocator = HostAllocator::new(Arc::clone(&backend));
    let mut numbers = Vec::new_in(allocator.clone());
    numbers.extend(0..10_000_u32);
    numbers.truncate(100);
    numbers.shrink_to_fit();
    assert!(numbers.iter().copied().eq(0..100));
    assert_eq!(backend.statistics().live_bytes, 400);
    let boxed = Box::new_in([7_u64; 16], allocator.clone());
    let mut map = hashbrown::HashMap::new_in(allocator);
    for n in 0..1000 {
        map.insert(n, n * 2);
    }
    assert_eq!(map[&999], 1998);
    assert!(backend.statistics().live >= 3);
    drop((numbers, boxed, map));
    assert_eq!(backend.statistics().live, 0);
    assert!(test.is_clean());
}

#[test]
fn managed_memory_needs_concurrent_access() {
    for concurrent in [true, false] {
        let sim = Sim::builder().concurrent_managed_access(concurrent).build();
        let backend = Small::<Unified>::with_capacity(64).with_driver(sim.driver().unwrap());
        match HostAllocator::try_new(&backend) {
            Ok(allocator) => {
                assert!(concurrent);
                let mut text = Vec::new_in(allocator);
                text.extend_from_slice(b"text");
                assert_eq!(text, b"text");
            }
            Err(error) => {
                assert!(!concurrent);
                assert_eq!(error.kind(), ErrorKind::HostAccess);
            }
        }
    }
}

#[test]
fn device_memory_holds_no_collections() {
    let test = test_driver();
    let backend = Small::<Device>::with_capacity(64).with_driver(test.driver.clone());
    let error = HostAllocator::try_new(&backend).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostAccess);
}

fn filled(allocator: &impl Allocator, layout: Layout) -> NonNull<u8> {
    let block: NonNull<u8> = allocator.allocate(layout).unwrap().cast();
    for index in 0..layout.size() {
        // SAFETY: the block has so many bytes.
        unsafe { block.add(index).write(index as u8) };
    }
    block
}

fn is_filled(block: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the callers name bytes that were written.
    (0..bytes).all(|index| unsafe { block.add(index).read() } == index as u8)
}

#[test]
fn grow_shrink_and_zeroed_do_what_the_layouts_say() {
    let test = test_driver();
    let backend = Small::<Pinned>::with_capacity(64).with_driver(test.driver.clone());
    let allocator = HostAllocator::new(&backend);
    let layouts = [(0, 1), (1, 1), (100, 8), (5000, 4096)]
        .map(|(size, align)| Layout::from_size_align(size, align).unwrap());
    for old in layouts {
        for new in layouts {
            let block = filled(&allocator, old);
            assert_eq!(block.addr().get() % old.align(), 0);
            // SAFETY: the block is of this allocator, with the old layout; a growing one isn't
            // smaller, and a shrinking one isn't larger.
            let (block, zeroed) = unsafe {
                if new.size() >= old.size() {
                    let grown = allocator.grow_zeroed(block, old, new).unwrap();
                    (grown, new.size() - old.size())
                } else {
                    (allocator.shrink(block, old, new).unwrap(), 0)
                }
            };
            assert_eq!(block.len(), new.size());
            let block: NonNull<u8> = block.cast();
            assert_eq!(block.addr().get() % new.align(), 0);
            assert!(is_filled(block, old.size().min(new.size())));
            for index in new.size() - zeroed..new.size() {
                // SAFETY: the block has so many bytes, and these are zero.
                assert_eq!(unsafe { block.add(index).read() }, 0);
            }
            // SAFETY: the block is of this allocator, with the new layout.
            unsafe { allocator.deallocate(block, new) };
        }
    }
    assert_eq!(backend.statistics().live, 0);
    assert_eq!(backend.statistics().not_owned, 0);
    let zeroed = allocator.allocate_zeroed(layouts[3]).unwrap();
    // SAFETY: a fresh block of zero bytes, given back afterwards.
    unsafe {
        assert!(zeroed.as_ref().iter().all(|&byte| byte == 0));
        allocator.deallocate(zeroed.cast(), layouts[3]);
    }
}

#[test]
fn shrinking_succeeds_where_there_is_no_room_for_a_second_block() {
    let test = test_driver();
    let backend = ByteLimit::new(
        Small::<Pinned>::with_capacity(64).with_driver(test.driver.clone()),
        100,
    );
    let allocator = HostAllocator::new(&backend);
    let (old, new) = (Layout::array::<u8>(100), Layout::array::<u8>(60));
    let (old, new) = (old.unwrap(), new.unwrap());
    let block = filled(&allocator, old);
    // SAFETY: the block is of this allocator, first with the old layout and then with the new one.
    unsafe {
        let shrunk = allocator.shrink(block, old, new).unwrap();
        assert!(is_filled(shrunk.cast(), 60));
        allocator.deallocate(shrunk.cast(), new);
    }
    assert_eq!(backend.reserved(), 0);
}

#[test]
fn out_of_memory_is_an_error_and_keeps_what_was_there() {
    let test = test_driver();
    let backend = ByteLimit::new(
        Small::<Pinned>::with_capacity(64).with_driver(test.driver.clone()),
        1000,
    );
    let mut numbers = Vec::with_capacity_in(200, HostAllocator::new(&backend));
    numbers.extend([1_u8; 200]);
    assert!(numbers.try_reserve(900).is_err());
    assert_eq!(numbers, [1; 200]);
}

#[test]
fn the_leak_report_names_the_line_that_made_the_allocator() {
    let test = test_driver();
    let backend = Small::<Pinned>::with_capacity(64).with_driver(test.driver.clone());
    let allocator = HostAllocator::new(&backend);
    let line = line!() - 1;
    let boxed = Box::new_in(1_u8, allocator);
    let live: std::vec::Vec<_> = backend.live().collect();
    assert_eq!(live[0].site.line(), line);
    assert!(live[0].site.file().ends_with("allocator.rs"));
    drop(boxed);
}
