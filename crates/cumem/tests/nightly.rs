//! The standard library's own collections in memory of a backend.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![feature(allocator_api)]

use cumem::{Backend, HostAllocator, MemoryBackend, Pinned, buckets_for};
use cumem_sim::Sim;

#[test]
fn vectors_and_boxes_live_in_pinned_memory() {
    let sim = Sim::new();
    let backend =
        Backend::<Pinned, { buckets_for(8) }>::with_capacity(8).with_driver(sim.driver().unwrap());
    let mut numbers = Vec::new_in(HostAllocator::new(&backend));
    numbers.extend(0..1000);
    numbers.shrink_to_fit();
    let boxed = Box::new_in([1_u8; 10], HostAllocator::new(&backend));
    assert_eq!(numbers.iter().sum::<i32>(), 499_500);
    assert_eq!(backend.statistics().live_bytes, 4010);
    drop((numbers, boxed));
    assert!(sim.books().are_clean());
}
