//! The shared library, built and put where the dynamic loader finds it.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Builds the library (cargo doesn't, for a test) and says where it is.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = if cfg!(debug_assertions) {
            "dev"
        } else {
            "release"
        };
        let output = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--package", "cumem-sim-library"])
            .args(["--profile", profile, "--message-format", "json"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let messages = String::from_utf8(output.stdout).unwrap();
        let file = messages
            .split('"')
            .find(|text| text.ends_with("libcumem_sim_library.so"))
            .unwrap();
        PathBuf::from(file)
    })
}

/// The library under the driver's name, in a folder of its own.
pub(crate) fn install() -> (tempfile::TempDir, PathBuf) {
    install_without(&[])
}

/// The same, without some of its symbols.
pub(crate) fn install_without(symbols: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    let mut image = std::fs::read(built()).unwrap();
    let hidden = cumem_sim::environment::hide_symbols(&mut image, symbols);
    assert_eq!(hidden, symbols.len());
    std::fs::write(&library, image).unwrap();
    (folder, library)
}

/// Runs one ignored test of the calling file in a process of its own, with that library first on
/// the loader's path and no other `CUMEM_` variable than those given.
pub(crate) fn run_alone(folder: &Path, test: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUMEM_")) {
        command.env_remove(name);
    }
    command
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// The same; the process must succeed. Returns what it wrote to both outputs.
pub(crate) fn succeeds_alone(folder: &Path, test: &str, environment: &[(&str, &str)]) -> String {
    let output = run_alone(folder, test, environment);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(
        text.contains("1 passed"),
        "no test is called {test}\n{text}"
    );
    text
}
