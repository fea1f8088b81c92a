//! Release in stream order: with marks that a test moves, and with the simulated driver's events.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use cumem_backend::MemoryBackend;
use cumem_device::DeviceBackend;
use cumem_pool::{DriverStreams, OrderedPool, Pool, PoolConfig, ReleaseOnError, StreamOrder};
use cumem_sim::Sim;
use cumem_sys::{CUstream, CUstream_flags, CuError};

const MIB: usize = 1 << 20;

/// Streams that come as far as the test says.
#[derive(Default)]
struct Counted {
    /// For each stream: marks recorded, marks passed.
    streams: Mutex<BTreeMap<usize, (u64, u64)>>,
}

impl Counted {
    fn pass_all(&self, stream: CUstream) {
        if let Some((recorded, passed)) = self.streams.lock().unwrap().get_mut(&stream.addr()) {
            *passed = *recorded;
        }
    }
}

// SAFETY: nothing runs on these streams.
unsafe impl StreamOrder for &Counted {
    type Mark = (usize, u64);

    unsafe fn record(&self, stream: CUstream) -> Result<Self::Mark, CuError> {
        let mut streams = self.streams.lock().unwrap();
        let (recorded, _) = streams.entry(stream.addr()).or_default();
        *recorded += 1;
        Ok((stream.addr(), *recorded))
    }

    fn has_passed(&self, (stream, number): &Self::Mark) -> Result<bool, CuError> {
        Ok(self.streams.lock().unwrap()[stream].1 >= *number)
    }
}

fn stream(number: usize) -> CUstream {
    ptr::without_provenance_mut(number)
}

type Backend = Box<DeviceBackend>;

fn pool(sim: &Sim, bytes: usize) -> Pool<Backend> {
    let backend = DeviceBackend::new().with_driver(sim.driver().unwrap());
    Pool::new(
        Box::new(backend),
        PoolConfig::new(bytes).segment_bytes(2 * MIB),
    )
}

fn release_on<S: StreamOrder>(
    pool: &OrderedPool<Backend, S>,
    ptr: NonNull<u8>,
    stream: CUstream,
) -> Result<(), ReleaseOnError> {
    // SAFETY: no work uses the memory, and the streams of a test live as long as it.
    unsafe { pool.release_on(ptr, stream) }
}

#[test]
fn a_block_is_reused_at_once_on_its_stream_and_later_elsewhere() {
    let (sim, order) = (Sim::builder().build(), Counted::default());
    let pool = OrderedPool::new(pool(&sim, 64 * MIB), &order, 4);
    for size in [4096, MIB, 8 * MIB] {
        let block = pool.acquire_on(size, 1, stream(1)).unwrap();
        release_on(&pool, block, stream(1)).unwrap();
        assert_eq!(pool.acquire_on(size, 1, stream(1)).unwrap(), block);
        release_on(&pool, block, stream(1)).unwrap();

        let mut others = Vec::new();
        for _ in 0..40 / size.div_ceil(MIB) {
            let other = pool.acquire_on(size, 1, stream(2)).unwrap();
            assert_ne!(other, block);
            others.push(other);
        }
        assert!(pool.poll() == 0 && pool.pool().find(block).is_none());
        order.pass_all(stream(1));
        assert_eq!(pool.poll(), 1);
        for other in others {
            // SAFETY: nothing uses it.
            unsafe { pool.pool().release(other) }.unwrap();
        }
        pool.pool().trim();
        assert_eq!(pool.pool().pool_statistics().reserved_bytes, 0);
    }
}

#[test]
fn a_block_released_again_on_its_stream_waits_for_the_later_mark() {
    let (sim, order) = (Sim::builder().build(), Counted::default());
    let pool = OrderedPool::new(pool(&sim, 64 * MIB), &order, 4);
    let block = pool.acquire_on(4096, 1, stream(1)).unwrap();
    release_on(&pool, block, stream(1)).unwrap();
    pool.poll(); // The first mark.
    assert_eq!(pool.acquire_on(4096, 1, stream(1)).unwrap(), block);
    release_on(&pool, block, stream(1)).unwrap();
    // The first mark is passed, the second not recorded yet.
    order.pass_all(stream(1));
    assert_eq!(pool.poll(), 0);
    order.pass_all(stream(1));
    assert_eq!(pool.poll(), 1);
}

#[test]
fn a_pending_block_cannot_be_released_again() {
    let (sim, order) = (Sim::builder().build(), Counted::default());
    let pool = OrderedPool::new(pool(&sim, 64 * MIB), &order, 4);
    for size in [4096, 8 * MIB] {
        let block = pool.acquire_on(size, 1, stream(1)).unwrap();
        release_on(&pool, block, stream(1)).unwrap();
        for on in [1, 2] {
            assert!(matches!(
                release_on(&pool, block, stream(on)),
                Err(ReleaseOnError::Refused(_))
            ));
        }
        // SAFETY: it is refused.
        assert!(unsafe { pool.pool().release(block) }.is_err());
    }
}

#[test]
fn memory_waiting_for_a_stream_is_used_before_the_pool_gives_up() {
    let (sim, order) = (Sim::builder().build(), Counted::default());
    let pool = OrderedPool::new(pool(&sim, 8 * MIB), &order, 4);
    let block = pool.acquire_on(8 * MIB, 1, stream(1)).unwrap();
    release_on(&pool, block, stream(1)).unwrap();
    assert!(pool.acquire_on(MIB, 1, stream(2)).is_err());
    order.pass_all(stream(1));
    let other = pool.acquire_on(MIB, 1, stream(2)).unwrap();
    release_on(&pool, other, stream(2)).unwrap();
}

#[test]
fn a_retired_streams_blocks_are_not_its_successors() {
    let (sim, order) = (Sim::builder().build(), Counted::default());
    let pool = OrderedPool::new(pool(&sim, 64 * MIB), &order, 4);
    let block = pool.acquire_on(MIB, 1, stream(1)).unwrap();
    release_on(&pool, block, stream(1)).unwrap();
    // SAFETY: a stream of the test.
    unsafe { pool.retire(stream(1)) }.unwrap();
    assert_ne!(pool.acquire_on(MIB, 1, stream(1)).unwrap(), block);
    order.pass_all(stream(1));
    assert_eq!(pool.poll(), 1);
}

#[test]
fn more_streams_than_places_are_refused_until_one_has_passed() {
    let (sim, order) = (Sim::builder().build(), Counted::default());
    let pool = OrderedPool::new(pool(&sim, 64 * MIB), &order, 2);
    let blocks: Vec<_> = (0..3)
        .map(|_| pool.acquire_on(4096, 1, stream(9)).unwrap())
        .collect();
    release_on(&pool, blocks[0], stream(1)).unwrap();
    release_on(&pool, blocks[1], stream(2)).unwrap();
    assert!(matches!(
        release_on(&pool, blocks[2], stream(3)),
        Err(ReleaseOnError::TooManyStreams { limit: 2 })
    ));
    assert!(pool.pool().find(blocks[2]).is_some());
    pool.poll();
    order.pass_all(stream(1));
    release_on(&pool, blocks[2], stream(3)).unwrap();
}

#[test]
fn with_events_of_a_driver_nothing_is_reused_before_its_stream_came_there() {
    let sim = Sim::builder().build();
    let driver = sim.driver().unwrap();
    let context = driver
        .device_primary_ctx_retain(driver.device_get(0).unwrap())
        .unwrap();
    // SAFETY: just retained, and never released here.
    unsafe { driver.ctx_push_current(context) }.unwrap();
    let stream = driver
        .stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)
        .unwrap();
    // SAFETY: the context lives as long as the test.
    let order = unsafe { DriverStreams::new(driver.clone(), context) };
    let pool = OrderedPool::new(pool(&sim, 64 * MIB), order, 4);

    let block = pool.acquire_on(MIB, 1, stream).unwrap();
    let held = sim.hold_streams();
    let to = cumem_backend::to_device_ptr(block.as_ptr());
    // SAFETY: the block has a mebibyte.
    unsafe { driver.memset_d8_async(to, 7, MIB, stream) }.unwrap();
    release_on(&pool, block, stream).unwrap();
    assert_eq!(pool.poll(), 0);
    assert_eq!(pool.poll(), 0);
    drop(held);
    // SAFETY: the stream is live.
    unsafe { driver.stream_synchronize(stream) }.unwrap();
    assert_eq!(pool.poll(), 1);
    // SAFETY: the stream is live.
    unsafe { pool.retire(stream) }.unwrap();
    // SAFETY: it is retired, and everything on it is done.
    unsafe { driver.stream_destroy(stream) }.unwrap();
}
