//! Typed buffers, of every kind of memory.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::mem::MaybeUninit;

use cumem::sys::CUresult;
use cumem::{
    Backend, Buffer, Device, DeviceBackend, DevicePreferred, DriverBackend, ErrorKind,
    MemoryBackend, MemoryKind, Pinned, PinnedBackend, StreamOrdered, Unified, UnifiedBackend,
    buckets_for,
};
use cumem_sim::{Fault, Sim, TestDriver};

const CAPACITY: usize = 64;
type Small<K> = Backend<K, { buckets_for(CAPACITY) }>;

fn small<K: MemoryKind>(test: &TestDriver) -> Small<K> {
    Small::with_capacity(CAPACITY).with_driver(test.driver.clone())
}

fn test_driver() -> TestDriver {
    TestDriver::new(Sim::builder().devices(2)).unwrap()
}

fn values_go_in_and_out<K: MemoryKind>() {
    let test = test_driver();
    let backend = small::<K>(&test);
    let values: Vec<u32> = (0..1000).map(|n| n * 7).collect();
    let mut buffer = Buffer::from_slice(&values, &backend).unwrap();
    assert_eq!((buffer.len(), buffer.is_empty()), (1000, false));
    assert_eq!(buffer.to_vec().unwrap(), values);
    assert_eq!(backend.statistics().live_bytes, 4000);

    buffer.slice_mut(10..12).copy_from_slice(&[1, 2]).unwrap();
    let mut back = [0; 4];
    buffer.slice(9..=12).copy_to_slice(&mut back).unwrap();
    assert_eq!(back, [63, 1, 2, 84]);

    let (mut left, right) = buffer.split_at_mut(500);
    left.copy_from(&right.as_view()).unwrap();
    assert_eq!(buffer.slice(..500).to_vec().unwrap(), values[500..]);

    let same = Buffer::from_iter(values.iter().copied(), &backend).unwrap();
    let made = Buffer::from_fn(1000, |index| index as u32 * 7, &backend).unwrap();
    assert_eq!(same.to_vec().unwrap(), made.to_vec().unwrap());
    let zeroed = Buffer::<u64, _>::zeroed(33, &backend).unwrap();
    assert_eq!(zeroed.to_vec().unwrap(), [0; 33]);
    drop((buffer, same, made, zeroed));
    assert_eq!(backend.statistics().live, 0);
    assert!(test.is_clean());
}

fn an_empty_buffer_copies_and_slices_and_calls_nobody<K: MemoryKind>() {
    let test = test_driver();
    let backend = small::<K>(&test);
    for len in [0, 5] {
        let mut units = Buffer::<(), _>::zeroed(len, &backend).unwrap();
        assert_eq!(units.to_vec().unwrap().len(), len);
        units.copy_from_slice(&vec![(); len]).unwrap();
        assert_eq!(units.as_slice().unwrap().len(), len);
        units.try_release().unwrap();
    }
    let mut empty = Buffer::from_slice(&[0_u32; 0], &backend).unwrap();
    assert!(empty.is_empty());
    empty.copy_from_slice(&[]).unwrap();
    assert_eq!(empty.slice(..).to_vec().unwrap(), []);
    let other = Buffer::<u32, _>::zeroed(0, &backend).unwrap();
    empty.copy_from(&other.as_view()).unwrap();
    let (left, right) = empty.split_at(0);
    assert!(left.is_empty() && right.is_empty());
    assert_eq!(empty.device_ptr(), 0);
    let (ptr, len, held) = empty.into_raw();
    // SAFETY: the parts of a buffer without bytes.
    drop(unsafe { Buffer::from_raw(ptr, len, held) }.unwrap());
    let counted = backend.statistics();
    assert_eq!((counted.allocated, counted.driver_allocations), (0, 0));
    assert_eq!((counted.not_owned, counted.failed), (0, 0));
    if let Some(sim) = &test.sim {
        assert_eq!(sim.books().calls_of("cuMemFree_v2"), 0);
    }
}

fn more_bytes_than_there_are_is_an_error<K: MemoryKind>() {
    let test = test_driver();
    let backend = small::<K>(&test);
    for len in [usize::MAX, usize::MAX / 8 + 1, usize::MAX / 16] {
        let error = Buffer::<u64, _>::zeroed(len, &backend).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidLayout, "{error}");
    }
    assert_eq!(backend.statistics().driver_allocations, 0);
}

fn another_length_is_refused_and_changes_nothing<K: MemoryKind>() {
    let test = test_driver();
    let backend = small::<K>(&test);
    let mut buffer = Buffer::from_slice(&[1_u8, 2, 3], &backend).unwrap();
    let shorter = Buffer::from_slice(&[9_u8], &backend).unwrap();
    for error in [
        buffer.copy_from_slice(&[9; 4]).unwrap_err(),
        buffer.copy_to_slice(&mut [0; 2]).unwrap_err(),
        buffer.copy_from(&shorter.as_view()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::LengthMismatch);
    }
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
}

fn a_failed_fill_keeps_nothing<K: MemoryKind>() {
    let test = test_driver();
    let (Some(sim), backend) = (&test.sim, small::<K>(&test)) else {
        return;
    };
    for call in ["cuMemsetD8_v2", "cuMemcpyHtoD_v2", "cuStreamSynchronize"] {
        sim.inject(Fault::always(call, CUresult::CUDA_ERROR_UNKNOWN));
    }
    // Pinned memory is written by the host, which no driver can refuse.
    let host = backend.host_access() == cumem::HostAccess::Always;
    assert_eq!(Buffer::<u8, _>::zeroed(100, &backend).is_ok(), host);
    assert_eq!(Buffer::from_slice(&[1_u8; 100], &backend).is_ok(), host);
    assert_eq!(backend.statistics().live, 0);
    assert!(sim.books().are_clean());
}

fn try_release_gives_the_buffer_back_with_the_error<K: MemoryKind>() {
    let test = test_driver();
    let (Some(sim), backend) = (&test.sim, small::<K>(&test)) else {
        return;
    };
    let buffer = Buffer::from_slice(&[1_u8, 2], &backend).unwrap();
    for call in ["cuMemFree_v2", "cuMemFreeHost", "cuMemFreeAsync"] {
        sim.inject(Fault::once(call, CUresult::CUDA_ERROR_LAUNCH_FAILED));
    }
    let failed = buffer.try_release().unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::Driver);
    assert!(failed.to_string().contains("CUDA_ERROR_LAUNCH_FAILED"));
    assert!(std::error::Error::source(&failed).is_some());
    let buffer = failed.into_buffer();
    assert_eq!(buffer.to_vec().unwrap(), [1, 2], "it is as it was");
    buffer.try_release().unwrap();
    assert!(sim.books().are_clean());
}

fn threads_use_it_whatever_context_they_have<K: MemoryKind>() {
    let test = test_driver();
    let backend = small::<K>(&test);
    let buffer = Buffer::from_slice(&[1_u8, 2], &backend).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(test.driver.ctx_get_current().unwrap().is_null());
            assert_eq!(buffer.to_vec().unwrap(), [1, 2]);
            drop(buffer);
            assert!(test.driver.ctx_get_current().unwrap().is_null());
        });
    });
    assert_eq!(backend.statistics().live, 0);
}

fn the_site_is_the_callers<K: MemoryKind>() {
    let test = test_driver();
    let backend = small::<K>(&test);
    let line = line!() + 1;
    let _zeroed = Buffer::<u8, _>::zeroed(1, &backend).unwrap();
    let _uninit = Buffer::<u8, _>::uninit(1, &backend).unwrap();
    let _slice = Buffer::from_slice(&[1_u8], &backend).unwrap();
    let _iter = Buffer::from_iter([1_u8], &backend).unwrap();
    let _fn = Buffer::from_fn(1, |_| 1_u8, &backend).unwrap();
    let mut lines: Vec<u32> = backend
        .live()
        .map(|live| {
            assert!(live.site.file().ends_with("buffer.rs"));
            assert!(live.site.file().contains("tests"), "{}", live.site);
            live.site.line()
        })
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, (line..line + 5).collect::<Vec<_>>());
}

macro_rules! for_every_kind {
    ($($test:ident)*) => {
        for_every_kind! { @ unified Unified: $($test)* }
        for_every_kind! { @ device Device: $($test)* }
        for_every_kind! { @ device_preferred DevicePreferred: $($test)* }
        for_every_kind! { @ stream_ordered StreamOrdered: $($test)* }
        for_every_kind! { @ pinned Pinned: $($test)* }
    };
    (@ $module:ident $kind:ident: $($test:ident)*) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$test::<super::$kind>();
            })*
        }
    };
}

for_every_kind! {
    values_go_in_and_out
    an_empty_buffer_copies_and_slices_and_calls_nobody
    more_bytes_than_there_are_is_an_error
    another_length_is_refused_and_changes_nothing
    a_failed_fill_keeps_nothing
    try_release_gives_the_buffer_back_with_the_error
    threads_use_it_whatever_context_they_have
    the_site_is_the_callers
}

#[test]
fn pinned_memory_is_a_slice() {
    let test = test_driver();
    let backend = small::<Pinned>(&test);
    let mut buffer = Buffer::from_slice(&[3_i32, 1, 2], &backend).unwrap();
    buffer.sort_unstable();
    assert_eq!(*buffer, [1, 2, 3]);
    buffer.slice_mut(1..)[0] = 9;
    assert_eq!(buffer.slice(1..).iter().sum::<i32>(), 12);
}

#[test]
fn managed_memory_is_a_slice_only_with_concurrent_access() {
    for concurrent in [true, false] {
        let sim = Sim::builder().concurrent_managed_access(concurrent).build();
        let backend = UnifiedBackend::new().with_driver(sim.driver().unwrap());
        let mut buffer = Buffer::from_slice(&[1_u8, 2], &backend).unwrap();
        assert_eq!(buffer.as_slice().is_ok(), concurrent);
        assert_eq!(buffer.as_mut_slice().is_ok(), concurrent);
        if !concurrent {
            let error = buffer.as_slice().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostAccess);
            assert!(error.to_string().contains("concurrent managed access"));
        }
        // SAFETY: no kernel runs on a simulated device.
        assert_eq!(unsafe { buffer.as_slice_unchecked() }, [1, 2]);
        assert_eq!(buffer.to_vec().unwrap(), [1, 2]);
    }
}

#[test]
fn device_memory_is_no_slice() {
    let test = test_driver();
    let backend = small::<Device>(&test);
    let buffer = Buffer::<u8, _>::zeroed(3, &backend).unwrap();
    let error = buffer.as_slice().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostAccess);
    assert!(error.to_string().contains("device memory"), "{error}");
}

#[test]
fn what_is_uninitialised_can_be_written_in_every_way() {
    let test = test_driver();
    let device = small::<Device>(&test);
    let pinned = small::<Pinned>(&test);
    let buffer = Buffer::<u16, _>::uninit(3, &device).unwrap();
    let buffer = buffer.write_from_slice(&[1, 2, 3]).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
    let mut buffer = Buffer::<u16, _>::uninit(3, &pinned).unwrap();
    buffer.fill(MaybeUninit::new(7));
    // SAFETY: every element was written.
    assert_eq!(*unsafe { buffer.assume_init() }, [7, 7, 7]);
    let error = Buffer::<u16, _>::uninit(3, &device)
        .unwrap()
        .write_from_slice(&[1])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LengthMismatch);
    assert_eq!(device.statistics().live, 1);
}

#[test]
fn buffers_of_different_kinds_and_devices_copy_to_each_other() {
    let test = test_driver();
    let on_first = small::<Device>(&test);
    // Another device where there is one.
    let last = test.driver.device_get_count().unwrap() - 1;
    let on_second = small::<Device>(&test).on_device(last.min(1));
    let pinned = small::<Pinned>(&test);
    let unified = small::<Unified>(&test);
    let values: Vec<u8> = (0..255).collect();
    let first = Buffer::from_slice(&values, &on_first).unwrap();
    let mut second = Buffer::<u8, _>::zeroed(255, &on_second).unwrap();
    let mut third = Buffer::<u8, _>::zeroed(255, &pinned).unwrap();
    let mut fourth = Buffer::<u8, _>::zeroed(255, &unified).unwrap();
    second.copy_from(&first.as_view()).unwrap();
    third.copy_from(&second.as_view()).unwrap();
    fourth.copy_from(&third.as_view()).unwrap();
    assert_eq!(fourth.as_slice().unwrap(), values);
}

#[test]
fn buffers_of_different_drivers_do_not_copy_to_each_other() {
    let (one, other) = (Sim::new(), Sim::new());
    let first = DeviceBackend::new().with_driver(one.driver().unwrap());
    let again = PinnedBackend::new().with_driver(one.driver().unwrap());
    let second = DeviceBackend::new().with_driver(other.driver().unwrap());
    let source = Buffer::from_slice(&[1_u8], &first).unwrap();
    let mut target = Buffer::<u8, _>::zeroed(1, &second).unwrap();
    let error = target.copy_from(&source.as_view()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DifferentDrivers);
    let mut target = Buffer::<u8, _>::zeroed(1, &again).unwrap();
    target.copy_from(&source.as_view()).unwrap();
    assert_eq!(*target, [1]);
}

#[test]
fn a_part_beyond_the_end_is_a_panic_that_names_the_caller() {
    let test = test_driver();
    let backend = small::<Unified>(&test);
    let buffer = Buffer::<u8, _>::zeroed(3, &backend).unwrap();
    let beyond: [(std::ops::Bound<usize>, std::ops::Bound<usize>); 3] = [
        (std::ops::Bound::Included(4), std::ops::Bound::Unbounded),
        (
            std::ops::Bound::Unbounded,
            std::ops::Bound::Included(usize::MAX),
        ),
        (std::ops::Bound::Included(2), std::ops::Bound::Excluded(1)),
    ];
    for part in beyond {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = buffer.slice(part);
        }));
        assert!(panicked.is_err());
    }
}

#[test]
fn a_buffer_goes_where_its_parts_go() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Buffer<u8, &'static UnifiedBackend>>();
    is_send_and_sync::<Buffer<f64, std::sync::Arc<PinnedBackend>>>();
    is_send_and_sync::<Buffer<f64, &'static dyn DriverBackend>>();
    is_send_and_sync::<cumem::View<'static, u8, DeviceBackend>>();
    is_send_and_sync::<cumem::ViewMut<'static, u8, DeviceBackend>>();
}
