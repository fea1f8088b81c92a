//! Small drivers written in C, compiled by the test that needs one, and processes of their own for
//! tests of what a process has only once.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::{OsStr, c_int};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cumem_sys::LoadError;

/// A folder of a test's own, emptied.
pub(crate) fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(env!("CARGO_CRATE_NAME"))
        .join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the test's folder can be made");
    folder
}

/// Compiles a variant of `driver.c` to `file` in that folder, as `libcuda.so.1` by its own account.
pub(crate) fn compile(folder: &Path, file: &str, variant: &[&str]) -> PathBuf {
    let library = folder.join(file);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/driver.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(&library)
        .args(variant)
        .arg(source)
        .status()
        .expect("a C compiler runs");
    assert!(status.success());
    library
}

/// A driver in a folder of the test's own.
pub(crate) fn driver(test: &str, variant: &[&str]) -> PathBuf {
    compile(&folder(test), "libcuda.so.1", variant)
}

/// The variables by which a fixture is watched and steered.
pub(crate) struct Fixture(libloading::Library);

impl Fixture {
    /// The one that a driver was, or will be, loaded from.
    pub(crate) fn open(library: &Path) -> Self {
        // SAFETY: the fixture has no initialisers.
        Self(unsafe { libloading::Library::new(library) }.expect("the fixture opens"))
    }

    pub(crate) fn get(&self, variable: &str) -> c_int {
        // SAFETY: it is an int that lives as long as the library; a racing write of the fixture
        // is one of a whole int, and volatile here.
        unsafe { self.address(variable).read_volatile() }
    }

    pub(crate) fn get_pair(&self, variable: &str) -> [c_int; 2] {
        // SAFETY: as above, of an array of two.
        unsafe { self.address(variable).cast::<[c_int; 2]>().read_volatile() }
    }

    pub(crate) fn set(&self, variable: &str, value: c_int) {
        // SAFETY: as in `get`.
        unsafe { self.address(variable).write_volatile(value) }
    }

    fn address(&self, variable: &str) -> *mut c_int {
        // SAFETY: the address is only looked up.
        let symbol = unsafe { self.0.get::<*mut c_int>(variable) };
        *symbol.expect("the fixture has this variable")
    }
}

/// The variable that tells a test that it is the process of its own.
const ALONE: &str = "CUMEM_SYS_TEST_ALONE";

/// Runs `body` in a process of its own, with these variables: the test, started again.
///
/// The driver of the environment, if the caller has one, isn't handed on.
pub(crate) fn alone(test: &str, variables: &[(&str, &OsStr)], body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        body();
        return;
    }
    let output = Command::new(std::env::current_exe().expect("a test knows its program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env_remove("CUMEM_DRIVER_PATH")
        .env(ALONE, "1")
        .envs(variables.iter().copied())
        .output()
        .expect("the test starts again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Checks that an error's text has these words.
pub(crate) fn says(error: &LoadError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// Whether `body` is true in a forked child. A child that hangs is killed, which is false.
pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs on one thread, on which what it needs of the C library works; it
    // leaves by `_exit`, so nothing of the parent's is ended twice.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork works");
    if child == 0 {
        // SAFETY: only this process, which nothing else runs in.
        unsafe { libc::alarm(20) };
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: see above.
        unsafe { libc::_exit(c_int::from(!verdict.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the status is a local.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Whether it is the error of a forked child, and says so.
pub(crate) fn is_forked(error: &LoadError) -> bool {
    let text = error.to_string();
    matches!(error, LoadError::Forked { .. }) && text.contains("forked") && text.contains("child")
}
