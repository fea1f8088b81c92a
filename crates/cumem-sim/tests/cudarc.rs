//! Another crate on the simulated driver: cudarc, which loads libcuda when it first calls it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::cudaError_enum::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};

#[test]
fn allocates_copies_and_frees() {
    let (folder, _) = common::install();
    let variables = [("CUMEM_SIM_BOOKS", "stderr")];
    let text = common::succeeds_alone(folder.path(), "child_copies", &variables);
    assert!(text.contains("  live: 0\n"), "{text}");
    assert!(text.contains("cuMemcpyHtoDAsync_v2: "), "{text}");
    assert!(text.contains("calls of legacy entry points: 0\n"), "{text}");
}

#[test]
fn meets_a_full_device() {
    let (folder, _) = common::install();
    let variables = [("CUMEM_SIM_MEMORY", "64M")];
    common::succeeds_alone(folder.path(), "child_runs_out_of_memory", &variables);
}

#[test]
fn meets_a_failing_free() {
    let (folder, _) = common::install();
    let variables = [
        ("CUMEM_SIM_BOOKS", "stderr"),
        ("CUMEM_SIM_FAULTS", "cuMemFreeAsync:nth=1:999"),
    ];
    let text = common::succeeds_alone(folder.path(), "child_loses_a_block", &variables);
    assert!(
        text.contains("  live: 1\n"),
        "the books show what was lost: {text}"
    );
}

#[test]
#[ignore = "runs in a process of its own, started by the tests above"]
fn child_copies() {
    let context = CudaContext::new(0).unwrap();
    for stream in [context.default_stream(), context.new_stream().unwrap()] {
        let numbers: Vec<u32> = (0..10_000).collect();
        let first = stream.clone_htod(&numbers).unwrap();
        let mut second = stream.alloc_zeros::<u32>(numbers.len()).unwrap();
        assert_eq!(stream.clone_dtoh(&second).unwrap(), vec![0; numbers.len()]);
        stream.memcpy_dtod(&first, &mut second).unwrap();
        assert_eq!(stream.clone_dtoh(&second).unwrap(), numbers);
    }
    // SAFETY: the memory is written before it is read.
    let mut unified = unsafe { context.alloc_unified::<u8>(100, true) }.unwrap();
    unified.as_mut_slice().unwrap().fill(7);
    assert_eq!(unified.as_slice().unwrap(), [7; 100]);
}

#[test]
#[ignore = "runs in a process of its own, started by the tests above"]
fn child_runs_out_of_memory() {
    let stream = CudaContext::new(0).unwrap().default_stream();
    let error = stream.alloc_zeros::<u8>(65 << 20).unwrap_err();
    assert_eq!(error.0, CUDA_ERROR_OUT_OF_MEMORY);
    stream.alloc_zeros::<u8>(1 << 20).unwrap();
}

#[test]
#[ignore = "runs in a process of its own, started by the tests above"]
fn child_loses_a_block() {
    let stream = CudaContext::new(0).unwrap().default_stream();
    drop(stream.alloc_zeros::<u8>(4096).unwrap());
    // cudarc keeps what a drop failed with, and the next call returns it.
    assert_eq!(stream.synchronize().unwrap_err().0, CUDA_ERROR_UNKNOWN);
    stream.synchronize().unwrap();
}
