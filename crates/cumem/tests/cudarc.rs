//! Buffers to and from cudarc, both on the simulated library in a process of their own.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![cfg(target_os = "linux")]

use std::process::Command;

use cudarc::driver::CudaContext;
use cumem::interop::{Adopted, lend};
use cumem::sys::Driver;
use cumem::{Backend, Buffer, Device, MemoryBackend, ReleaseError, Unified, buckets_for};

type Small<K> = Backend<K, { buckets_for(16) }>;

/// Runs an ignored test of this file with the simulated driver as `libcuda.so.1`.
fn run_alone(test: &str) {
    // Cargo doesn't build a library for another package's test.
    let output = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--package", "cumem-sim-library"])
        .args(["--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let messages = String::from_utf8(output.stdout).unwrap();
    let built = messages
        .split('"')
        .find(|text| text.ends_with("libcumem_sim_library.so"))
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(built, folder.path().join("libcuda.so.1")).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env("CUMEM_SIM_BOOKS", "stderr")
        .env_remove("CUMEM_DRIVER_PATH")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("  live: 0\n"), "{text}");
}

#[test]
fn a_buffer_is_lent_and_comes_back() {
    run_alone("child_lends");
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_lends() {
    let driver = Driver::load().unwrap();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let unified = Small::<Unified>::with_capacity(16).with_driver(driver.clone());
    let device = Small::<Device>::with_capacity(16).with_driver(driver);
    let values: Vec<u32> = (0..100).collect();
    let buffer = Buffer::<u32, _>::zeroed(100, &device).unwrap();
    let address = buffer.device_ptr();
    // SAFETY: both load `libcuda.so.1`, and the stream is of the primary context.
    let (buffer, ()) = unsafe {
        lend(buffer, &stream, |mut view| {
            stream.memcpy_htod(&values, &mut view).unwrap();
        })
    }
    .unwrap();
    assert_eq!(
        buffer.device_ptr(),
        address,
        "nothing was copied to lend it"
    );
    assert_eq!(buffer.to_vec().unwrap(), values);

    let other = Buffer::from_slice(&values, &unified).unwrap();
    // SAFETY: as above.
    let (other, back) =
        unsafe { lend(other, &stream, |view| stream.clone_dtoh(&view).unwrap()) }.unwrap();
    assert_eq!(back, values);

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // SAFETY: as above.
        unsafe { lend(other, &stream, |_| std::panic::resume_unwind(Box::new(()))) }
            .map(|(_, nothing): (_, ())| nothing)
    }));
    assert!(panicked.is_err());
    assert_eq!(
        unified.statistics().live,
        0,
        "a panic gives the memory back"
    );
    drop(buffer);
    assert_eq!(device.statistics().released, 1);
}

#[test]
fn a_slice_is_adopted_and_given_back() {
    run_alone("child_adopts");
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_adopts() {
    let driver = Driver::load().unwrap();
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    // SAFETY: both load `libcuda.so.1`.
    let adopted = unsafe { Adopted::new(&driver, &stream) };
    let slice = stream.clone_htod(&[1_u16, 2, 3]).unwrap();
    let line = line!() + 1;
    let mut buffer = adopted.adopt(slice).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
    assert_eq!(adopted.statistics().live_bytes, 6);
    let ptr = std::ptr::NonNull::new(buffer.as_mut_ptr()).unwrap().cast();
    assert_eq!(adopted.find(ptr).unwrap().site.line(), line);
    buffer.copy_from_slice(&[4, 5, 6]).unwrap();
    let slice = adopted.give_back(buffer).unwrap();
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), [4, 5, 6]);
    assert_eq!(adopted.statistics().live, 0);
    // SAFETY: it isn't held here any more, so it is refused.
    let verdict = unsafe { adopted.release(ptr) };
    assert!(matches!(verdict, Err(ReleaseError::NotOwned { .. })));

    let empty = adopted
        .adopt(stream.clone_htod(&[0_u8; 8]).unwrap())
        .unwrap();
    drop(empty);
    let own = Buffer::from_slice(&[7_u64; 9], &adopted).unwrap();
    assert_eq!(own.to_vec().unwrap(), [7; 9]);
    drop(own);
    assert!(Buffer::<u8, _>::zeroed(1 << 50, &adopted).is_err());
    assert_eq!(adopted.statistics().live, 0);
    assert_eq!(adopted.statistics().failed, 1);
}
