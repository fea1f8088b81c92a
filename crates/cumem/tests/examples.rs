//! Every example runs, on the simulated driver, and says what it should.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::process::{Command, Output};

fn run(example: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--example", example, "--"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // No library of that name: the examples simulate a driver, or say that there is none.
        .env("CUMEM_DRIVER_PATH", "/nowhere/libcuda.so.1")
        .output()
        .unwrap()
}

#[test]
fn every_example_says_what_it_should() {
    for (example, expected) in [
        ("unified", "from [1, 2, 3] to [998, 999, 1000]"),
        ("device", "the host can't touch device memory"),
        ("device_preferred", "a heap of [1048576] bytes"),
        ("stream_ordered", "round 3: [3, 3, 3, 3]"),
        ("pinned", "round 3: the device has [3, 3, 3, 3]"),
        ("virtual_memory", "for 67108864 bytes, 67108864 are there"),
        ("static_backend", "LimitExceeded: could not allocate"),
        ("raw_allocator", "0 pages are live"),
        ("kernel", "no kernel can run here"),
    ] {
        let output = run(example, &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{example}: {text}{errors}");
        assert!(text.contains(expected), "{example}: {text}");
        assert_eq!(errors, "", "{example}");
    }
    let output = run("static_backend", &["--leak"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("still live at process exit: 1 live allocations, 1000 bytes"),
        "{errors}"
    );
}
