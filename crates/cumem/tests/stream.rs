//! Copies in a stream: what they use stays theirs until the stream has passed.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::mem::MaybeUninit;
use std::sync::Arc;

use cumem::sys::{CUresult, Driver};
use cumem::{
    Backend, Buffer, Device, ErrorKind, MemoryBackend, Pinned, Stream, StreamOrdered, Unified,
    buckets_for,
};
use cumem_sim::{Fault, Sim};

/// Small ones, since several are made on a test's stack.
type Small<K> = Backend<K, { buckets_for(16) }>;

struct World {
    sim: Sim,
    driver: Driver,
    host: Arc<Small<Pinned>>,
    device: Arc<Small<Device>>,
    stream: Stream,
}

fn world() -> World {
    let sim = Sim::new();
    let driver = sim.driver().unwrap();
    World {
        host: Arc::new(Small::<Pinned>::with_capacity(16).with_driver(driver.clone())),
        device: Arc::new(Small::<Device>::with_capacity(16).with_driver(driver.clone())),
        stream: Stream::new(&driver, 0).unwrap(),
        sim,
        driver,
    }
}

impl World {
    fn values(&self) -> Buffer<u32, Arc<Small<Pinned>>> {
        Buffer::from_iter(0..100, Arc::clone(&self.host)).unwrap()
    }

    fn place(&self) -> Buffer<u32, Arc<Small<Device>>> {
        Buffer::zeroed(100, Arc::clone(&self.device)).unwrap()
    }
}

#[test]
fn a_copy_gives_its_buffers_back_once_it_is_done() {
    let world = world();
    let (values, place) = (world.values(), world.place());
    let held = world.sim.hold_streams();
    let copying = world.stream.copy(values, place).unwrap();
    assert!(!copying.is_done().unwrap());
    drop(held);
    let (values, place) = copying.wait().unwrap();
    assert_eq!(place.to_vec().unwrap(), *values);
    drop((values, place, world.stream));
    assert_eq!(world.device.statistics().live, 0);
    assert!(world.sim.books().are_clean());
}

#[test]
fn copies_follow_each_other_between_all_places() {
    let world = world();
    let values: Vec<u32> = (0..100).map(|n| n * 3).collect();
    let up = world.stream.upload(values.clone(), world.place()).unwrap();
    let (_, place) = up.wait().unwrap();
    let down = world.stream.download(place, vec![0; 100]).unwrap();
    let (place, back) = down.wait().unwrap();
    assert_eq!(back, values);
    let across = world.stream.copy(place, world.values()).unwrap();
    let (_, host) = across.wait().unwrap();
    assert_eq!(*host, values);
}

#[test]
fn dropping_a_pending_copy_waits_before_the_memory_goes_back() {
    let world = world();
    let (values, place) = (world.values(), world.place());
    let held = world.sim.hold_streams();
    let copying = world.stream.copy(values, place).unwrap();
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(copying));
        // The copy can't be done while the streams are held, so nothing was freed.
        let released = world.device.statistics().released;
        drop(held);
        dropping.join().unwrap();
        assert_eq!(released, 0);
    });
    assert_eq!(world.device.statistics().live, 0);
    assert_eq!(world.host.statistics().live, 0);
    assert!(world.sim.books().are_clean());
}

#[test]
fn a_forgotten_copy_keeps_its_memory() {
    let world = world();
    std::mem::forget(world.stream.copy(world.values(), world.place()).unwrap());
    world.stream.synchronize().unwrap();
    assert_eq!(world.device.statistics().live, 1);
    assert_eq!(world.device.leak_report().allocations().len(), 1);
    assert_eq!(world.sim.books().live.len(), 2);
}

#[test]
fn a_copy_that_cannot_be_waited_for_keeps_its_memory() {
    let world = world();
    let failing = Fault::always("cuEventSynchronize", CUresult::CUDA_ERROR_LAUNCH_FAILED);
    world.sim.inject(failing);
    let copying = world.stream.copy(world.values(), world.place()).unwrap();
    let error = copying.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    drop(world.stream.copy(world.values(), world.place()).unwrap());
    assert_eq!(world.device.statistics().live, 2);
    assert_eq!(world.device.statistics().release_refused, 0);
}

#[test]
fn a_failure_on_the_way_gives_the_buffers_back_at_once() {
    let world = world();
    for call in ["cuEventCreate", "cuMemcpyAsync"] {
        world
            .sim
            .inject(Fault::once(call, CUresult::CUDA_ERROR_UNKNOWN));
        let refused = world
            .stream
            .copy(world.values(), world.place())
            .unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Driver, "{call}");
        let (values, place) = refused.into_parts();
        assert_eq!((values.len(), place.len()), (100, 100));
    }
    // The event could not be recorded: the stream is waited for instead.
    let fault = Fault::once("cuEventRecord", CUresult::CUDA_ERROR_UNKNOWN);
    world.sim.inject(fault);
    let (values, place) = (world.values(), world.place());
    let held = world.sim.hold_streams();
    let copying = world.stream.copy(values, place).unwrap();
    assert!(!copying.is_done().unwrap());
    drop(held);
    let (values, place) = copying.wait().unwrap();
    assert_eq!(place.to_vec().unwrap(), *values);
    drop((values, place));
    assert!(world.sim.books().are_clean());
}

#[test]
fn what_cannot_be_copied_comes_back() {
    let world = world();
    let shorter = Buffer::<u32, _>::zeroed(3, Arc::clone(&world.device)).unwrap();
    let refused = world.stream.copy(world.values(), shorter).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::LengthMismatch);
    let (values, _) = refused.into_parts();
    let other = Sim::new();
    let elsewhere =
        Arc::new(Small::<Unified>::with_capacity(16).with_driver(other.driver().unwrap()));
    let foreign = Buffer::<u32, _>::zeroed(100, elsewhere).unwrap();
    let refused = world.stream.copy(values, foreign).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::DifferentDrivers);
}

#[test]
fn nothing_is_copied_without_the_driver() {
    let world = world();
    let empty = || Buffer::<u32, _>::zeroed(0, Arc::clone(&world.device)).unwrap();
    let copying = world.stream.copy(empty(), empty()).unwrap();
    assert!(copying.is_done().unwrap());
    copying.wait().unwrap();
    world
        .stream
        .upload(vec![], empty())
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(world.sim.books().calls_of("cuEventCreate"), 0);
}

#[test]
fn a_copy_can_be_waited_for_on_another_thread_after_its_stream_is_dropped() {
    let World {
        sim,
        stream,
        device,
        host,
        ..
    } = world();
    let values = Buffer::from_slice(&[1_u8, 2], host).unwrap();
    let place = Buffer::<u8, _>::zeroed(2, device).unwrap();
    let copying = stream.copy(values, place).unwrap();
    drop(stream);
    let copied = std::thread::spawn(move || {
        let (_, place) = copying.wait().unwrap();
        place.to_vec().unwrap()
    });
    assert_eq!(copied.join().unwrap(), [1, 2]);
    assert!(sim.books().are_clean());
}

#[test]
fn a_stream_on_no_device_is_an_error() {
    let world = world();
    let error = Stream::new(&world.driver, 7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    assert!(error.driver_error().is_some());
}

#[test]
fn a_copy_to_another_devices_fresh_memory_comes_after_its_allocation() {
    let sim = Sim::builder().devices(2).build();
    let driver = sim.driver().unwrap();
    let backend = Small::<StreamOrdered>::with_capacity(16)
        .on_device(1)
        .with_driver(driver.clone());
    let place = Buffer::<u8, _>::uninit(3, Arc::new(backend)).unwrap();
    let host = Small::<Pinned>::with_capacity(16).with_driver(driver.clone());
    let mut values = Buffer::<u8, _>::uninit(3, Arc::new(host)).unwrap();
    values.fill(MaybeUninit::new(7));
    let stream = Stream::new(&driver, 0).unwrap();
    let before = sim.books().calls_of("cuStreamSynchronize");
    let (_, place) = stream.copy(values, place).unwrap().wait().unwrap();
    assert_eq!(sim.books().calls_of("cuStreamSynchronize"), before + 1);
    // SAFETY: the copy wrote every element.
    assert_eq!(unsafe { place.assume_init() }.to_vec().unwrap(), [7; 3]);
}
