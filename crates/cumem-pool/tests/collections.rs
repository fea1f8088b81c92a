//! Collections in pooled memory, on the simulated driver.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use allocator_api2::boxed::Box as PoolBox;
use allocator_api2::vec::Vec as PoolVec;
use cumem_device::DeviceBackend;
use cumem_pinned::PinnedBackend;
use cumem_pool::{Pool, PoolConfig};
use cumem_sim::Sim;
use cumem_unified::UnifiedBackend;

#[test]
fn a_vector_grows_in_pinned_memory_and_gives_everything_back() {
    let sim = Sim::builder().build();
    let backend = PinnedBackend::new().with_driver(sim.driver().unwrap());
    let pool = Pool::new(Box::new(backend), PoolConfig::new(64 << 20));
    let allocator = pool.host_allocator().unwrap();
    let mut numbers = PoolVec::new_in(allocator);
    numbers.extend(0..100_000_u64);
    assert!(numbers.iter().copied().eq(0..100_000));
    let boxed = PoolBox::new_in([7_u8; 3000], allocator);
    assert_eq!(pool.pool_statistics().live, 2);
    assert!(PoolVec::<(), _>::new_in(allocator).is_empty());
    drop((numbers, boxed));
    let read = pool.pool_statistics();
    assert_eq!((read.live, read.refused), (0, 0));
}

#[test]
fn memory_that_the_host_may_not_touch_is_no_allocator() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let device = DeviceBackend::new().with_driver(driver.clone());
    let device = Pool::new(Box::new(device), PoolConfig::new(8 << 20));
    assert!(device.host_allocator().is_none());
    let unified = UnifiedBackend::new().with_driver(driver);
    let unified = Pool::new(Box::new(unified), PoolConfig::new(8 << 20));
    assert!(unified.host_allocator().is_none());
    // SAFETY: the simulated device supports concurrent managed access.
    assert!(unsafe { unified.managed_host_allocator() }.is_some());
}
